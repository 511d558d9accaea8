"""The shape of a Transformer: everything that decides which operators a layer has, and how large they are."""

from dataclasses import dataclass, replace
from enum import StrEnum

from traces.errors import UserError


class Norm(StrEnum):
    """The normalisation of a model."""

    LAYERNORM = "layernorm"
    RMSNORM = "rmsnorm"


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Attention with low-rank queries, keys and values (MLA, arXiv 2405.04434, section 2.1). Both ranks have a norm."""

    query_rank: int  # 0 = queries are not compressed
    kv_rank: int
    rotary_dim: int  # of a head, for queries and the one shared key
    plain_dim: int  # of a head, without rotation
    value_dim: int  # of a head

    @property
    def key_dim(self) -> int:
        """Elements of a query, and of a key, per head."""
        return self.plain_dim + self.rotary_dim


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The experts of a mixture-of-experts layer."""

    count: int
    per_token: int
    intermediate: int  # of one expert
    shared: int = 0  # experts that every token visits
    dense_layers: int = 0  # the first layers have an ordinary MLP


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A Transformer.

    Attributes:
        gated: the MLP multiplies two projections (SwiGLU, GeGLU).
        causal: a decoder; False = an encoder, in which every token sees all others.
        rotary: positions rotate queries and keys; False = positions are added to the embedding.
        scored: instead of both, positions change the scores (ALiBi, DeBERTa), in no kernel of their own.
        bias: linear layers have a bias.
        latent, experts: None = ordinary attention, an ordinary MLP.
        tied: the output layer uses the weights of the embedding.
        head_norms: each head of queries and of keys has a norm (Qwen3).
        output_norms: the outputs of attention and MLP have a norm before they are added (Gemma 2 and 3).

    Raises:
        UserError: names the field, what was found and what is allowed.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    gated: bool
    causal: bool = True
    norm: Norm = Norm.LAYERNORM
    rotary: bool = False
    scored: bool = False
    bias: bool = True
    tied: bool = True
    head_norms: bool = False
    output_norms: bool = False
    latent: Latent | None = None
    experts: Experts | None = None

    def __post_init__(self):
        for field in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "max_positions"):
            if getattr(self, field) < 1:
                raise UserError(f"model {self.name}: {field} = {getattr(self, field)}: must be at least 1")
        if self.heads % self.kv_heads:
            raise UserError(f"model {self.name}: kv_heads = {self.kv_heads}: must divide heads = {self.heads}")
        if self.experts and not 1 <= self.experts.per_token <= self.experts.count:
            raise UserError(
                f"model {self.name}: experts_per_token = {self.experts.per_token}: must be 1 to {self.experts.count}"
            )

    @property
    def text(self) -> str:
        """The shape in a line, so that a user sees how a config.json was read."""
        heads = "low-rank attention" if self.latent else f"{self.kv_heads} of keys and values"
        mlp = f"{'gated ' if self.gated else ''}MLP {self.intermediate:,}"
        if self.experts:
            mlp += (
                f", {self.experts.count} experts of {self.experts.intermediate:,} ({self.experts.per_token} per token"
            )
            mlp += f", {self.experts.shared} shared)" if self.experts.shared else ")"
        return (
            f"{self.weights / 1e9:,.3g} billion weights, {self.layers} layers, hidden {self.hidden:,}, "
            f"{self.heads} heads ({heads}),\n{mlp}, {self.norm}, {'decoder' if self.causal else 'encoder'}, "
            f"{'rotary' if self.rotary else 'added' if self.added else 'scored'} positions"
        )

    @property
    def added(self) -> bool:
        """Are learned positions added to the embedding?"""
        return not self.rotary and not self.scored

    @property
    def query_width(self) -> int:
        """Elements of all queries of a token."""
        return self.heads * (self.latent.key_dim if self.latent else self.head_dim)

    @property
    def value_width(self) -> int:
        """Elements of the attention's output of a token."""
        return self.heads * (self.latent.value_dim if self.latent else self.head_dim)

    @property
    def kv_width(self) -> int:
        """Elements that the KV cache keeps for a token in a layer."""
        if self.latent:
            return self.latent.kv_rank + self.latent.rotary_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def mixture(self) -> Experts:
        """The experts of a model that has them."""
        if self.experts is None:
            raise UserError(f"model {self.name}: has no experts")
        return self.experts

    @property
    def dense_layers(self) -> int:
        """Layers with an ordinary MLP."""
        return min(self.layers, self.experts.dense_layers) if self.experts else self.layers

    def with_layers(self, layers: int) -> "ModelShape":
        """This model with another number of layers. Layers with an ordinary MLP go first: nearly all have experts."""
        if self.experts is None:
            return replace(self, layers=layers)
        dense = min(self.dense_layers, max(0, layers - (self.layers - self.dense_layers)))
        return replace(self, layers=layers, experts=replace(self.experts, dense_layers=dense))

    @property
    def attention_weights(self) -> int:
        """Weights of the linear layers of one attention."""
        output = self.value_width * self.hidden
        if self.latent is None:
            return self.hidden * (self.query_width + self.kv_width) + output
        rank = self.latent.query_rank
        query = rank * (self.hidden + self.query_width) if rank else self.hidden * self.query_width
        up = self.latent.kv_rank * self.heads * (self.latent.plain_dim + self.latent.value_dim)
        return query + self.hidden * self.kv_width + up + output

    def attention_weights_of(self, tp: int) -> int:
        """Those on one of `tp` tensor-parallel GPUs: heads are divided, but each GPU has a whole head of keys and
        values, and all have the down projections to latent ranks."""
        if self.latent is None:
            shared = 2 * self.hidden * max(self.head_dim, self.kv_heads * self.head_dim // tp)
            return shared + self.hidden * (self.query_width + self.value_width) // tp
        whole = self.hidden * (self.latent.query_rank + self.kv_width)
        return whole + (self.attention_weights - whole) // tp

    def mlp_weights(self, intermediate: int) -> int:
        """Weights of an MLP with this inner width."""
        return (3 if self.gated else 2) * self.hidden * intermediate

    @property
    def expert_weights(self) -> int:
        """Weights of one expert, 0 if there are none."""
        return self.mlp_weights(self.experts.intermediate) if self.experts else 0

    @property
    def embedding_weights(self) -> int:
        """Weights of the embedding, with learned positions if the model has them."""
        return (self.vocab + (self.max_positions if self.added else 0)) * self.hidden

    @property
    def weights(self) -> int:
        """All weights of linear layers and embeddings. Norms and biases (below 0.1 %) are left out."""
        total = self.layers * self.attention_weights + self.dense_layers * self.mlp_weights(self.intermediate)
        total += self.embedding_weights + (0 if self.tied else self.vocab * self.hidden)
        if self.experts:
            each = (self.experts.count + self.experts.shared) * self.expert_weights + self.hidden * self.experts.count
            total += (self.layers - self.dense_layers) * each
        return total
