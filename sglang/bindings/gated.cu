extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }};
    warpsmith::stream = stream;
    warpsmith::Array<2> from(input, type, {tokens, 2 * hidden}), to(out, type, {tokens, hidden});
    {{ exports[0] }}(from, to, "{{ values.kind }}");
}
