"""The kernels of a layer as texts of `tracer.kernels`, from a model and its deployment."""

from tracer.models.deployment import Deployment, ModelPhase, Optimizer
from tracer.models.schedule import OperatorClass
from tracer.models.shape import ModelShape

ATTENTION, MATRIX = OperatorClass.ATTENTION, OperatorClass.MATRIX


class KernelTexts:
    """Texts of the kernels of one GPU. Methods that can need several kernels return a list."""

    def __init__(self, model: ModelShape, how: Deployment):
        self.model, self.how = model, how
        self.heads = model.heads // how.tp
        self.kv_heads = max(1, model.kv_heads // how.tp)
        self.keys = how.kv_length + 1 if how.phase == ModelPhase.GENERATE else how.sequence
        self.queries = 1 if how.phase == ModelPhase.GENERATE else how.sequence
        self.head_dim = model.latent.key_dim if model.latent else model.head_dim

    def _text(self, name: str, **fields: object) -> str:
        given = {field: value for field, value in fields.items() if value is not False}
        values = ",".join(f"{field}={str(value).lower()}" for field, value in given.items())
        return f"{name}:{values},dtype={self.how.dtype}"

    def matrix(self, m: int, n: int, k: int, batch: int = 1) -> str:
        return self._text("gemm", m=m, n=n, k=k, batch=False if batch == 1 else batch)

    def grouped(self, groups: int, m: int, n: int, k: int) -> str:
        """GEMMs of all local experts in one kernel."""
        return self.matrix(m, n, k, groups)

    def norm(self, **options: object) -> str:
        return self._text(self.model.norm, rows=self.how.rows, cols=self.model.hidden, stats=self.how.train, **options)

    def first_norm(self) -> str:
        """The norm at the begin of a layer; fused, it adds the output of the MLP before."""
        return self.norm(residual=self.how.fused, dropout=self.how.fused and self.how.dropout)

    def norm_backward(self) -> str:
        return self._text(self.model.norm, rows=self.how.rows, cols=self.model.hidden, backward=True)

    def residual_norm(self) -> list[str]:
        """Dropout, residual and norm between attention and MLP."""
        if self.how.fused:
            return [self.norm(residual=True, dropout=self.how.dropout)]
        return [*self.eager_residual(), self.norm()]

    def residual(self) -> list[str]:
        """Dropout and residual behind the MLP; fused, the next norm does it."""
        return [] if self.how.fused else self.eager_residual()

    def eager_residual(self) -> list[str]:
        sizes = {"rows": self.how.rows, "cols": self.model.hidden}
        dropout = [self._text("dropout", **sizes)] if self.how.dropout else []
        return [*dropout, self._text("residual", **sizes)]

    def residual_backward(self) -> list[str]:
        """Gradients behind a residual: two branches are added; dropout's mask is applied."""
        sizes = {"rows": self.how.rows, "cols": self.model.hidden}
        dropout = [self._text("dropout", **sizes, backward=True)] if self.how.dropout else []
        return [*dropout, self._text("residual", **sizes)]

    def rotary(self, backward: bool = False) -> str:
        tokens = self.how.tokens
        return self._text(
            "rotary",
            tokens=tokens,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.model.latent.rotary_dim if self.model.latent else self.model.head_dim,
            backward=backward,
        )

    def activation(self, rows: int, width: int, backward: bool = False) -> list[str]:
        if self.model.gated:
            return [self._text("swiglu", rows=rows, cols=width, backward=backward, **self._eager())]
        return [self._text("gelu", rows=rows, cols=width, bias=self.model.bias, backward=backward, **self._eager())]

    def _eager(self) -> dict[str, object]:
        return {} if self.how.fused else {"fused": "false"}

    def attention(self) -> list[tuple[str, OperatorClass, str]]:
        """(name, class, kernel) of the attention core."""
        if self.how.flash:
            return [("attention", ATTENTION, self._flash())]
        batch, rows = self.how.micro_batch * self.heads, self.how.micro_batch * self.heads * self.queries
        steps = [
            ("scores", ATTENTION, self.matrix(self.queries, self.keys, self.head_dim, batch)),
            ("softmax", ATTENTION, self._text("softmax", rows=rows, cols=self.keys)),
        ]
        if self.how.dropout:
            steps.append(("attention_dropout", ATTENTION, self._text("dropout", rows=rows, cols=self.keys)))
        return [*steps, ("values", ATTENTION, self.matrix(self.queries, self.head_dim, self.keys, batch))]

    def attention_backward(self) -> list[tuple[str, OperatorClass, str]]:
        if self.how.flash:
            return [("attention_back", ATTENTION, self._flash(backward=True))]
        batch, rows = self.how.micro_batch * self.heads, self.how.micro_batch * self.heads * self.queries
        q, s, d = self.queries, self.keys, self.head_dim
        steps = [
            ("values_scores", ATTENTION, self.matrix(q, s, d, batch)),
            ("values_value", ATTENTION, self.matrix(s, d, q, batch)),
        ]
        if self.how.dropout:
            text = self._text("dropout", rows=rows, cols=s, backward=True)
            steps.append(("attention_dropout_back", ATTENTION, text))
        return [
            *steps,
            ("softmax_back", ATTENTION, self._text("softmax", rows=rows, cols=s, backward=True)),
            ("scores_query", ATTENTION, self.matrix(q, d, s, batch)),
            ("scores_key", ATTENTION, self.matrix(s, d, q, batch)),
        ]

    def _flash(self, backward: bool = False) -> str:
        return self._text(
            "flash_attention",
            batch=self.how.micro_batch,
            heads=self.heads,
            kv_heads=self.heads if self.model.latent else self.kv_heads,
            seq=self.keys,
            queries=self.queries if self.queries != self.keys else False,
            head_dim=self.head_dim,
            causal="true" if self.model.causal else "false",
            stats=self.how.train and not backward,
            backward=backward,
        )

    def embedding(self, backward: bool = False) -> str:
        vocab = -(-self.model.vocab // self.how.tp)
        return self._text("embedding", tokens=self.how.tokens, hidden=self.model.hidden, vocab=vocab, backward=backward)

    def loss(self, backward: bool = False) -> list[str]:
        vocab = -(-self.model.vocab // self.how.tp)
        return [self._text("cross_entropy", rows=self.how.tokens, vocab=vocab, backward=backward, **self._eager())]

    def optimizer(self, parameters: int) -> list[tuple[str, str]]:
        """(name, kernel) of the update of `parameters` weights, gradient clipping first."""
        name = "lamb" if self.how.optimizer == Optimizer.LAMB else "adam"
        eager = self._eager() if name == "adam" else {}
        return [
            ("gradient_clip", f"gradient_clip:parameters={parameters}"),
            (name, self._text(name, parameters=parameters, **eager)),
        ]

    def route(self, tokens: int) -> list[str]:
        experts = self.model.mixture
        return [self._text("moe_route", tokens=tokens, experts=experts.count, top_k=experts.per_token)]

    def permute(self, tokens: int, back: bool = False) -> str:
        """Tokens to the order of their experts; back = to the order of the batch, with their weights."""
        experts = self.model.mixture
        return self._text(
            "moe_unpermute" if back else "moe_permute",
            tokens=tokens,
            experts=experts.count,
            top_k=experts.per_token,
            hidden=self.model.hidden,
        )
