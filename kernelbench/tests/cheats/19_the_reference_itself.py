# kind: 19, the reference is called
# problem: 1_Softplus
# ours: raised


class ModelNew(Model):  # noqa: F821
    pass
