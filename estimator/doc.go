package estimator
