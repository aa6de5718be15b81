extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }};
    warpsmith::stream = stream;
    warpsmith::Array<2> in(input, type, {tokens, hidden}), sum(residual, type, {tokens, hidden});
    warpsmith::Array<1> scale(weight, type, {hidden});
    {{ exports[0] }}(in, sum, scale, eps);
}
