"""Named tuples that compiled functions pass by reference.

numba passes a named tuple of arrays by value, each array as seven words. The records of a machine are 300 words, in
every call. That made a third of the code that LLVM had to read, nearly all of it for nothing.
"""

from numba.core import cgutils, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.extending import NativeValue, lower_getattr_generic, register_model, typeof_impl, unbox
from numba.core.typing.templates import AttributeTemplate, infer_getattr


class Reference(types.Type):
    """The type of a reference to a named tuple.

    Attributes:
        target: numba's type of the tuple.
    """

    def __init__(self, target):
        self.target = target
        super().__init__(f"Reference({target}, {target.fields})")


@register_model(Reference)
class _ReferenceModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, manager.lookup(kind.target).get_data_type().as_pointer())


def by_reference(named_tuple):
    """Class decorator: compiled functions receive tuples of this class by reference. They can only read fields."""

    @typeof_impl.register(named_tuple)
    def _(value, context):
        return Reference(types.NamedTuple([typeof_impl(field, context) for field in value], named_tuple))

    return named_tuple


@unbox(Reference)
def _unbox(kind, value, context):
    """Copy the arrays of a tuple (their addresses and shapes) to the stack of the function that Python calls."""
    native = context.unbox(kind.target, value)
    builder = context.builder
    place = cgutils.alloca_once(builder, native.value.type)
    for k in range(len(kind.target.types)):
        builder.store(builder.extract_value(native.value, k), cgutils.gep_inbounds(builder, place, 0, k))
    return NativeValue(place, native.is_error, native.cleanup)


@infer_getattr
class _ReferenceFields(AttributeTemplate):
    key = Reference

    def generic_resolve(self, kind, name):
        fields = kind.target.fields
        return kind.target.types[fields.index(name)] if name in fields else None


@lower_getattr_generic(Reference)
def _load_field(context, builder, kind, place, name):
    k = kind.target.fields.index(name)
    return context.unpack_value(builder, kind.target.types[k], cgutils.gep_inbounds(builder, place, 0, k))
