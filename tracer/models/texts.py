"""The kernels of a layer as texts of `tracer.kernels`, from a model and its deployment.

What each software (`Deployment.software`) runs, read off public sources. A line has the kernels of one place:

                      eager, eager-2019 (PyTorch; NVIDIA's BERT) Megatron-LM (2022)              fused
    Q, K, V           three GEMMs; three biases *                a GEMM, a bias                  a GEMM
    scores            a copy each of Q, K, V; scale; mask;       softmax with scale and mask     the same
                      softmax
    gradient of it    gradient times output; softmax; scale      the same; scale of Q's and K's  the same
    after attention   a copy, and one of its gradient            a copy                          none
    bias, dropout,    bias *; dropout; residual; norm            one for bias, dropout and       one kernel
    residual, norm                                               residual; norm
    activation        GELU; eager-2019: with the bias            bias and GELU in one            the same
    gradient of bias  a sum over the tokens                      the same                        in the GEMM
    loss              logarithm of softmax, then the choice;     fused (assumed)                 fused
                      in fp32, from casts ****
    without FSDP      casts of weights; embedding, norms,        none                            none
                      softmax and residuals in fp32, casts ****
    ZeRO 2 and 3      copies of weights and gradients **         none (assumed)                  none
    else              copies of gradients to buckets and back ** none (assumed)                  none
    gradients         fp32                                       as computed: fp16, else fp32    fp32 (assumed)
    their sum over    a kernel                                   the same                        in the GEMM; ZeRO 2
    micro-batches                                                                                and 3: a kernel
    Adam              clipping; eight kernels ***                fp16: eight (`adam:scaled`)     clipping; one kernel

* eager-2019 only. PyTorch of today has biases in the GEMMs (cuBLASLt; aten/src/ATen/native/cuda/Blas.cpp,
`addmm_out_cuda_impl`), but behind a sum over tensor-parallel GPUs a kernel of its own.
** eager: FSDP2 copies gathered weights to their places, and gradients to the buffer of the reduce-scatter, there in
fp32 (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: `split_with_sizes_copy`, `chunk_cat`). eager-2023: the
first FSDP joins the gradients of its flat weights, casts them to fp32 and divides them (PyTorch 2.1, flat_param.py:
`torch.split`; _runtime_utils.py: `_post_backward_hook`; default_hooks.py: `reduce_scatter_hook`). Without ZeRO 2 and
3, DDP (torch/csrc/distributed/c10d/reducer.cpp; `gradient_as_bucket_view` is off if nothing is asked for).
*** torch.optim.AdamW on a GPU, if nothing is asked for (`foreach`; torch/optim/adamw.py, `_multi_tensor_adamw`).
eager-2019: one kernel, which writes a copy of the weights in 16 bits (assumed), as those of Megatron-LM and fused
software do.
**** autocast: products in 16 bits; norms, softmax and the loss in fp32 (aten/src/ATen/autocast_mode.h), so that what
layers hand on stays in fp32, as the embedding is. Casts of weights are kept for the backward pass; a norm's output is
cast once, also for several products. A residual reads both branches in fp32. eager-2019: none of these (assumed).
Megatron-LM is that of April 2022 (@f602ac56: mpu/layers.py, model/transformer.py, optimizer/optimizer.py). `baddbmm`
scales the gradients of Q and K (PyTorch, derivatives.yaml).
Norms, softmax and fused attention of eager software are PyTorch's kernels (`tracer.operators.library`; the backward
pass of the attention is that of FlashAttention 2), its loop over elements is in `tracer.models.kernel_text`. A scale
and a mask are copies here: a tensor is read, and one is written.

compile (torch.compile) has the kernels of `fused`, made by TorchInductor (`tracer.operators.inductor`): they also cast
for autocast, and the gradient of a norm has that of its residual. Fused attention, gradients of biases, casts of
weights, copies and Adam are those of eager software.
"""

from collections import Counter
from collections.abc import Iterable

from tracer.data_type import DataType
from tracer.models.deployment import ContextExchange, Deployment, ModelPhase, Software
from tracer.models.kernel_text import COMPILED, ELEMENT_WISE, LOOPS, cast_of, kernel_of, loop_of
from tracer.models.schedule import OperatorClass
from tracer.models.shape import ModelShape

ATTENTION, NORM = OperatorClass.ATTENTION, OperatorClass.NORM


class KernelTexts:
    """Texts of the kernels of one GPU. Methods that can need several kernels return a list.

    Attributes:
        products: matrix products of the attention core, one for each sequence and head.
        eager, compiled: of PyTorch without and with a compiler; pytorch: either. fused: also compiled.
    """

    def __init__(self, model: ModelShape, how: Deployment):
        self.model, self.how = model, how
        self.heads = model.heads // how.tp
        self.kv_heads = max(1, model.kv_heads // how.tp)
        self.products = how.micro_batch * model.heads // how.tp
        self.keys = how.kv_length + 1 if how.phase == ModelPhase.GENERATE else how.sequence
        self.queries = 1 if how.phase == ModelPhase.GENERATE else how.sequence
        self.head_dim = model.latent.key_dim if model.latent else model.head_dim
        self.value_dim = model.latent.value_dim if model.latent else model.head_dim
        self.compiled = how.software == Software.COMPILE
        self.eager = how.software in LOOPS and not self.compiled
        self.fused = how.software == Software.FUSED or self.compiled
        self.pytorch = self.eager or self.compiled
        self.megatron = how.software == Software.MEGATRON
        self.bias_in_gemm = self.fused or (self.eager and how.software != Software.EAGER_2019)

    def _text(self, name: str, dtype: DataType | None = None, /, **fields: object) -> str:
        """dtype: None = that of the model."""
        looped = (*ELEMENT_WISE, *COMPILED) if self.compiled else ELEMENT_WISE
        if name in looped and not (name == "bias" and fields.get("backward")):
            fields |= loop_of(self.how, int(str(fields.get("cols", 0))))
        return kernel_of(name, dtype or self.how.dtype, **fields)

    def matrix(self, m: int, n: int, k: int, batch: int = 1) -> str:
        return self._text("gemm", m=m, n=n, k=k, batch=False if batch == 1 else batch)

    def weight(self, m: int, n: int, k: int, batch: int = 1) -> str:
        """The gradient of weights: m x n of them, k tokens."""
        if not self.how.adds_in_gemm:
            return self.matrix(m, n, k, batch)
        sizes = {"m": m, "n": n, "k": k, "batch": False if batch == 1 else batch}
        return self._text("gemm", **sizes, out_dtype=self.how.gradient_type, with_c=True)

    def grouped(self, rows: tuple[int, ...], n: int, k: int) -> str:
        """GEMMs of all local experts in one kernel. rows: M of each."""
        if rows[0] == rows[-1]:
            return self.matrix(rows[0], n, k, len(rows))
        groups = "x".join(f"{number}*{m}" for m, number in Counter(rows).items())
        return self._text("gemm", n=n, k=k, groups=groups)

    def norm(self, rows: int = 0, cols: int = 0, dtype: DataType | None = None, **options: object) -> str:
        """0 = of the hidden elements of all tokens of this GPU."""
        sizes = {"rows": rows or self.how.rows, "cols": cols or self.model.hidden}
        return self._text(self.model.norm, dtype, **sizes, stats=self.how.train, library=self._library, **options)

    def softmax(self, rows: int, backward: bool = False) -> str:
        """Of the scores; eager as PyTorch does it."""
        sizes = {"rows": rows, "cols": self.keys}
        return self._text("softmax", self._score_type, **sizes, backward=backward, library=self._library)

    def _scores_cast(self, name: str, out: DataType) -> list[tuple[str, OperatorClass, str]]:
        """autocast: softmax and the dropout of its output are in fp32."""
        text = cast_of(self.how, self.products * self.queries, self.keys, out)
        return [(name, ATTENTION, text)] if self.how.autocasts and not self.compiled else []

    @property
    def _score_type(self) -> DataType:
        """Of scores between kernels. Compiled, a kernel casts what it reads and writes."""
        return self.how.dtype if self.compiled else self.how.stream_type

    @property
    def _branch_type(self) -> DataType | bool:
        """Of what a compiled norm gives to an attention or MLP, and gets from it; False = as between layers."""
        return self.how.dtype if self.compiled and self.how.autocasts else False

    @property
    def _library(self) -> str | bool:
        """Whose norm and softmax it is; False = not said."""
        return "torch" if self.eager else "inductor" if self.compiled else False

    def passes(self, rows: int, widths: Iterable[int]) -> list[str]:
        """Kernels that each read and write a tensor of `rows` rows: copies, scales, masks."""
        return [self._text("copy", rows=rows, cols=width) for width in widths]

    def bias(self, rows: int, width: int, behind_sum: bool = False) -> list[str]:
        """The bias of a linear layer, if it is a kernel of its own. behind_sum: the output is a sum over GPUs."""
        in_gemm = self.bias_in_gemm and not (behind_sum and self.how.tp > 1)
        return [self._text("bias", rows=rows, cols=width)] if self.model.bias and not in_gemm else []

    def bias_backward(self, rows: int, width: int) -> list[str]:
        """The gradient of a bias, if it is a kernel of its own."""
        if (self.fused and not self.compiled) or not self.model.bias:
            return []
        return [self._text("bias", rows=rows, cols=width, backward=True)]

    def first_norm(self) -> list[str]:
        """The norm at the begin of a layer, and the cast of its output, if any; fused, it adds the output of the MLP
        before."""
        if self.fused:
            return self.residual_norm()
        return [self.norm(dtype=self.how.stream_type), *self._stream_cast(self.how.dtype)]

    def norm_backward(self, rows: int = 0, cols: int = 0, dtype: DataType | None = None, **options: object) -> str:
        sizes = {"rows": rows or self.how.rows, "cols": cols or self.model.hidden}
        compiled = {"library": self._library} if self.compiled else {}
        return self._text(self.model.norm, dtype, **sizes, backward=True, **compiled, **options)

    def first_norm_backward(self) -> list[str]:
        """The same of any norm between layers, of attention or MLP; compiled, with the residual."""
        stream, dropout, out = self.how.stream_type, self.how.dropout, self._branch_type
        if self.compiled:
            return [self.norm_backward(dtype=stream, residual=True, dropout=dropout, out=out)]
        return [*self._stream_cast(DataType.FP32), self.norm_backward(dtype=stream)]

    def _stream_cast(self, out: DataType) -> list[str]:
        """The cast of activations between layers to the type of matrix products, or of gradients back (autocast)."""
        return [cast_of(self.how, self.how.rows, self.model.hidden, out)] if self.how.autocasts else []

    def rank_norm(self, projection: str, backward: bool = False) -> list[str]:
        """The norm of the latent rank that a projection has made, if any (DeepSeek-V3, inference/model.py: `q_norm` and
        `kv_norm`). All GPUs have all of it."""
        rank, norm = self.model.latent, self.norm_backward if backward else self.norm
        widths = {"q_down": rank.query_rank, "kv_down": rank.kv_rank} if rank else {}
        return [norm(self.how.tokens, widths[projection])] if projection in widths else []

    def head_norms(self, backward: bool = False) -> list[str]:
        """Norms of the heads of queries and of keys, if any, before they rotate."""
        norm = self.norm_backward if backward else self.norm
        heads = (self.heads, self.kv_heads) if self.model.head_norms else ()
        return [norm(self.how.tokens * number, self.head_dim) for number in heads]

    def output_norm(self, backward: bool = False) -> list[str]:
        """The norm of the output of attention or MLP, if any."""
        norm = self.norm_backward if backward else self.norm
        return [norm()] if self.model.output_norms else []

    def residual_norm(self) -> list[str]:
        """Bias, dropout, residual and norm between attention and MLP."""
        if self.fused:
            stream, dropout, out = self.how.stream_type, self.how.dropout, self._branch_type
            return [self.norm(dtype=stream, residual=True, dropout=dropout, out=out)]
        return [*self.residual(), *self.first_norm()]

    def residual(self) -> list[str]:
        """Bias, dropout and residual behind the MLP; fused, the next norm does it."""
        sizes = {"rows": self.how.rows, "cols": self.model.hidden}
        if self.fused:
            return []
        if not self.eager:
            return [self._text("residual", **sizes, dropout=self.how.dropout)]
        dropout = [self._text("dropout", **sizes)] if self.how.dropout else []
        bias = self.bias(self.how.rows, self.model.hidden, behind_sum=True)
        return [*bias, *dropout, self._text("residual", self.how.stream_type, **sizes)]

    def residual_backward(self) -> list[str]:
        """Gradients behind a residual: two branches are added; dropout's mask is applied; the bias has its gradient."""
        if self.compiled:  # the norm's kernel does the others
            return self.bias_backward(self.how.rows, self.model.hidden)
        sizes = {"rows": self.how.rows, "cols": self.model.hidden}
        branch = self._stream_cast(self.how.dtype)
        branch += [self._text("dropout", **sizes, backward=True)] if self.how.dropout else []
        branch += self.bias_backward(self.how.rows, self.model.hidden)
        return [*branch, self._text("residual", self.how.stream_type, **sizes)]

    def sum(self, rows: int, cols: int = 0) -> str:
        """The sum of two outputs, or of two gradients of an input; 0 columns = of the hidden size."""
        return self._text("residual", rows=rows, cols=cols or self.model.hidden)

    def rotary(self, backward: bool = False) -> str:
        tokens = self.how.tokens
        return self._text(
            "rotary",
            tokens=tokens,
            heads=self.heads,
            kv_heads=1 if self.model.latent else self.kv_heads,  # all heads share the part of a key that rotates
            head_dim=self.model.latent.rotary_dim if self.model.latent else self.model.head_dim,
            backward=backward,
        )

    def kv_cache(self) -> str:
        """New keys and values go into the cache, of latent attention the row that all heads share (vLLM,
        csrc/cache_kernels.cu: `reshape_and_cache_flash`, `concat_and_cache_mla`). Eager software has the same kernel
        (assumed: PyTorch appends by a copy of the whole cache)."""
        heads, width = (1, -(-self.model.kv_width // 2)) if self.model.latent else (self.kv_heads, self.model.head_dim)
        return self._text("kv_cache", tokens=self.how.tokens, kv_heads=heads, head_dim=width)

    def activation(self, rows: int, width: int, backward: bool = False) -> list[str]:
        if self.model.gated:
            eager = {"fused": "false"} if self.eager else {}
            return [self._text("swiglu", rows=rows, cols=width, backward=backward, **eager)]
        bias = self.model.bias and not (self.pytorch and self.bias_in_gemm)
        gelu = self._text("gelu", rows=rows, cols=width, bias=bias, backward=backward)
        return [gelu, *(self.bias_backward(rows, width) if backward else ())]

    @property
    def projected(self) -> list[int]:
        """Elements of the queries, keys and values of a token on this GPU."""
        query = self.model.query_width // self.how.tp
        if self.model.latent:
            return [query, query, self.model.value_width // self.how.tp]
        values = max(self.head_dim, self.model.kv_heads * self.head_dim // self.how.tp)
        return [query, values, values]

    @property
    def attended(self) -> int:
        """Elements of the attention's output for a token on this GPU."""
        return self.model.value_width // self.how.tp

    def attention(self) -> list[tuple[str, OperatorClass, str]]:
        """(name, class, kernel) of the attention core."""
        if self.model.latent and self.how.phase == ModelPhase.GENERATE:
            return self._latent_attention()
        if self.how.flash:
            return [("attention", ATTENTION, self.flash(self.queries, self.keys, self.model.causal))]
        batch, rows = self.products, self.products * self.queries
        steps = [("scores", ATTENTION, self.matrix(self.queries, self.keys, self.head_dim, batch))]
        if self.eager:
            copies = self.passes(self.how.tokens, self.projected)
            steps = [(f"heads_copy_{number}", NORM, text) for number, text in enumerate(copies)] + steps
            scale, mask = self.passes(rows, [self.keys] * 2)
            steps += [("scale", ATTENTION, scale), ("mask", ATTENTION, mask)]
        steps += [*self._scores_cast("scores_cast", DataType.FP32), ("softmax", ATTENTION, self.softmax(rows))]
        if self.how.dropout:
            text = self._text("dropout", self._score_type, rows=rows, cols=self.keys)
            steps.append(("attention_dropout", ATTENTION, text))
        steps += self._scores_cast("softmax_cast", self.how.dtype)
        steps.append(("values", ATTENTION, self.matrix(self.queries, self.value_dim, self.keys, batch)))
        return [*steps, *([] if self.fused else self._context_copy("context_copy"))]

    def _latent_attention(self) -> list[tuple[str, OperatorClass, str]]:
        """Of a new token over a latent cache, of which all heads read the same row for each older token.

        The projections of keys and values are applied to queries and outputs instead (DeepSeek-V2, arXiv 2405.04434,
        section 2.1.2). Scores and values are kernels of their own, so the cache is read twice.
        """
        rank, batch = self.model.latent, self.how.micro_batch
        assert rank is not None
        return [
            ("query_latent", ATTENTION, self.matrix(batch, rank.kv_rank, rank.plain_dim, self.heads)),
            ("scores", ATTENTION, self.matrix(self.heads, self.keys, rank.kv_rank + rank.rotary_dim, batch)),
            ("softmax", ATTENTION, self.softmax(self.products)),
            ("values", ATTENTION, self.matrix(self.heads, rank.kv_rank, self.keys, batch)),
            ("value_up", ATTENTION, self.matrix(batch, rank.value_dim, rank.kv_rank, self.heads)),
        ]

    def _context_copy(self, name: str) -> list[tuple[str, OperatorClass, str]]:
        """The copy of the attention's output to the order of the tokens, or of its gradient back."""
        return [(name, NORM, text) for text in self.passes(self.how.tokens, [self.attended])]

    def attention_backward(self) -> list[tuple[str, OperatorClass, str]]:
        if self.how.flash:
            text = self.flash(self.queries, self.keys, self.model.causal, backward=True)
            return [("attention_back", ATTENTION, text)]
        batch, rows = self.products, self.products * self.queries
        q, s, d = self.queries, self.keys, self.head_dim
        steps = [
            *(self._context_copy("context_copy_back") if self.eager else []),
            ("values_scores", ATTENTION, self.matrix(q, s, self.value_dim, batch)),
            ("values_value", ATTENTION, self.matrix(s, self.value_dim, q, batch)),
            *self._scores_cast("softmax_cast_back", DataType.FP32),
        ]
        if self.how.dropout:
            text = self._text("dropout", self._score_type, rows=rows, cols=s, backward=True)
            steps.append(("attention_dropout_back", ATTENTION, text))
        if self.eager:  # `grad * output` of softmax_backward_cuda (PyTorch, SoftMax.cu)
            product = self._text("residual", self.how.stream_type, rows=rows, cols=s)
            steps.append(("softmax_back_product", ATTENTION, product))
        steps.append(("softmax_back", ATTENTION, self.softmax(rows, backward=True)))
        steps += self._scores_cast("scores_cast_back", self.how.dtype)
        steps += [("scale_back", ATTENTION, text) for text in self.passes(rows, [s] if self.eager else [])]
        steps += [
            ("scores_query", ATTENTION, self.matrix(q, d, s, batch)),
            ("scores_key", ATTENTION, self.matrix(s, d, q, batch)),
        ]
        if self.megatron:
            steps += [("query_scale", NORM, text) for text in self.passes(self.products * q, [d])]
            steps += [("key_scale", NORM, text) for text in self.passes(self.products * s, [d])]
        widths = self.projected if self.eager else [] if self.fused else [sum(self.projected)]
        copies = self.passes(self.how.tokens, widths)
        return steps + [(f"heads_copy_back_{number}", NORM, text) for number, text in enumerate(copies)]

    def flash(self, queries: int, keys: int, causal: bool, cut: int = 1, backward: bool = False) -> str:
        """Fused attention of queries and keys of each sequence, with 1 / cut of the heads of this GPU."""
        merged = self.how.cp > 1 and self.how.context == ContextExchange.RING
        return self._text(
            "flash_attention",
            batch=self.how.micro_batch,
            heads=self.heads // cut,
            kv_heads=(self.heads if self.model.latent else self.kv_heads) // cut,
            seq=keys,
            queries=queries if queries != keys else False,
            head_dim=self.head_dim,
            causal="true" if causal else "false",
            stats=(self.how.train or merged) and not backward,
            backward=backward,
            library="torch" if self.pytorch and not backward else False,
            version=2 if backward and self.pytorch else False,
        )

    def embedding(self, backward: bool = False) -> str:
        vocab = -(-self.model.vocab // self.how.tp)
        sizes = {"tokens": self.how.tokens, "hidden": self.model.hidden, "vocab": vocab}
        return self._text("embedding", self.how.stream_type, **sizes, backward=backward)

    def head(self) -> list[str]:
        """Activation and norm before the words of an encoder are predicted."""
        rows, hidden = self.how.predicted, self.model.hidden
        return [*self.activation(rows, hidden), self.norm(rows, hidden)]

    def head_backward(self) -> list[str]:
        rows, hidden = self.how.predicted, self.model.hidden
        return [self.norm_backward(rows, hidden), *self.activation(rows, hidden, backward=True)]

    def loss(self, backward: bool = False) -> list[str]:
        rows, vocab = self.how.predicted, -(-self.model.vocab // self.how.tp)
        fields = {"rows": rows, "vocab": vocab, "backward": backward} | ({"fused": "false"} if self.eager else {})
        if self.compiled or not self.how.casts_weights or self.how.dtype.bytes == DataType.FP32.bytes:
            return [self._text("cross_entropy", **fields)]
        loss = kernel_of("cross_entropy", DataType.FP32, **fields)
        cast = cast_of(self.how, rows, vocab, self.how.dtype if backward else DataType.FP32)
        return [loss, cast] if backward else [cast, loss]

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
