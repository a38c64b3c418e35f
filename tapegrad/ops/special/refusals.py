"""What is left of scipy.special: ufuncs whose result is constant, and those that are refused, each with the reason."""

from __future__ import annotations

import numpy as np
from scipy import special

from ...core.primitive import CONSTANTS, REFUSED, UFUNCS

CONSTANTS.update({special.gammasgn, special.round})

_REASONS = {
    "it inverts a distribution by a count or a parameter, for which no rule is declared": (
        "bdtri bdtrik bdtrin btdtria btdtrib chdtriv fdtri fdtridfd gdtria gdtrib gdtrix nbdtri nbdtrik nbdtrin pdtri "
        "pdtrik stdtridf kolmogi smirnovi"
    ),
    "it inverts a noncentral distribution by a parameter, for which no rule is declared": (
        "chndtridf chndtrinc ncfdtridfd ncfdtridfn ncfdtrinc nctdtridf nctdtrinc"
    ),
    "it is the distribution of a test statistic, whose density SciPy has no function for": (
        "kolmogorov smirnov tklmbda"
    ),
    "it is a wave function (Mathieu's, spheroidal or parabolic), whose slope is itself only a second result of SciPy's": (
        "mathieu_a mathieu_b mathieu_cem mathieu_modcem1 mathieu_modcem2 mathieu_modsem1 mathieu_modsem2 mathieu_sem "
        "obl_ang1 obl_ang1_cv obl_cv obl_rad1 obl_rad1_cv obl_rad2 obl_rad2_cv pbdv pbvv pbwa pro_ang1 pro_ang1_cv pro_cv "
        "pro_rad1 pro_rad1_cv pro_rad2 pro_rad2_cv"
    ),
    "the derivative of Carlson's integrals cancels where arguments meet: use ellipk, ellipe, ellipkinc and ellipeinc": (
        "elliprc elliprd elliprf elliprg elliprj"
    ),
    "it is an integral of a special function for which no rule is declared": (
        "it2i0k0 it2j0y0 it2struve0 itairy itmodstruve0 itstruve0 modfresnelm modfresnelp besselpoly"
    ),
    "its scale is no analytic function, or it packs several functions: use airy, or ber, bei, ker and kei": "airye kelvin",
    "no rule is declared for this generalised function": (
        "wright_bessel log_wright_bessel lpmv eval_sh_jacobi"
    ),
    "SciPy 1.17 has it no more: use sph_harm_y": "sph_harm",
}

for _reason, _names in _REASONS.items():
    for _name in _names.split():
        _of = getattr(special, _name, None)
        if isinstance(_of, np.ufunc) and _of not in UFUNCS:
            REFUSED[_of] = _reason

__all__: list[str] = []
