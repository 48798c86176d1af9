"""Measures in words: what each one means, and which value is best."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS = {
    "unfairness": ("Unfairness (Eq. 8)", "0", "Mean squared disparity of exposure per merit over pairs of items."),
    "floor": ("Fairness floor", "", "The lowest unfairness possible with the same visits and places."),
    "distance": ("Distance to the floor", "0", "Unfairness less its floor: what other lists could have avoided."),
    "relative_unfairness": ("Unfairness per impression²", "0", "Unfairness that does not grow with the log."),
    "group_unfairness": ("Unfairness among groups", "0", "Eq. 8 on the sums of exposure and merit of each group."),
    "iaa": ("Inequity of amortised attention", "0", "Sum over items of |attention received less attention due|."),
    "iaa_per_session": ("Inequity per impression", "0", "The same divided by the impressions: 0 to 2."),
    "ee_d": ("EE-D", "", "Squared length of expected exposure: how unequal it is."),
    "ee_r": ("EE-R", "", "Twice its product with the ideal exposure: how well it follows merit."),
    "ee_l": ("EE-L", "0", "Squared distance of expected exposure from the ideal one."),
    "gini": ("Gini coefficient of exposure", "", "0 if all items of a query have the same exposure."),
    "gini_corrected": ("Gini, corrected", "", "0 if equal, 1 if as unequal as lists of this length can be."),
    "jain": ("Jain's index of exposure", "", "1 if all items of a query have the same exposure."),
    "jain_corrected": ("Jain, corrected", "", "1 if equal, 0 if as unequal as lists of this length can be."),
    "entropy": ("Entropy of exposure, bits", "", "Highest if all items of a query have the same exposure."),
    "entropy_corrected": ("Entropy, corrected", "", "1 if equal, 0 if as unequal as lists of this length can be."),
    "ctr": ("Click rate", "", "Clicks per shown item."),
    "clicks_per_impression": ("Clicks per impression", "", "Clicks per list."),
    "clicks_per_exposure": ("Clicks per exposure", "", "Click rate corrected for the ranks at which items stood."),
    "ips_ctr": ("IPS-weighted click rate", "", "Click rate of a uniformly random policy, by the logged propensities."),
    "ndcg": ("NDCG by merit", "1", "Attention-weighted merit of the lists over that of ideal lists."),
    "demographic_parity": ("Demographic parity", "1", "Least over greatest exposure per candidate among groups."),
    "disparate_treatment": ("Disparate treatment", "1", "Least over greatest exposure per merit among groups."),
    "disparate_impact": ("Disparate impact", "1", "Least over greatest number of clicks per merit among groups."),
    "impact_ratio": ("Impact ratio", "1", "Lowest selection rate of a group over that of the best group."),
    "awrf_log2_population": ("AWRF, log2, population", "1", "Attention of groups against their share of candidates."),
    "awrf_log2_merit": ("AWRF, log2, merit", "1", "Attention of groups against their share of merit."),
    "awrf_log2_given": ("AWRF, log2, given target", "1", "Attention of groups against the given shares."),
    "awrf_geometric_population": ("AWRF, geometric, population", "1", "The same with attention halved at each rank."),
    "awrf_geometric_merit": ("AWRF, geometric, merit", "1", "The same with attention halved at each rank."),
    "awrf_geometric_given": ("AWRF, geometric, given target", "1", "The same with attention halved at each rank."),
}
"""Label, the value that is fair or best ("" if none is), and a sentence, of each measure."""
