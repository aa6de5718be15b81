extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }};
    warpsmith::stream = stream;
    warpsmith::Array<3> query(q, type, {tokens, q_heads, dim}), key(k, type, {tokens, k_heads, dim});
    warpsmith::Array<1> query_scale(q_weight, type, {dim}), key_scale(k_weight, type, {dim});
    {{ exports[0] }}(query, key, query_scale, key_scale, eps);
}
