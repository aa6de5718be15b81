// A part of a chain, of the stand-in.
namespace {
struct rope {};
}
