"""The demonstration: 27 real data sets fitted with Jacobians from the tape, judged against NIST.

NIST's Statistical Reference Datasets certify the least-squares parameters of 27 nonlinear models,
and their standard deviations, to eleven digits. `models` states the models in plain NumPy, `strd`
reads the data, `fitting` fits, `measures` judges, `report` prints and `pictures` draws. The
certified values meet a fit only in `report`, after it has ended.
"""
