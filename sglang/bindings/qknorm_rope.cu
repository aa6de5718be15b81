extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }}, single = {kDLFloat, 32, 1}, whole = {kDLInt, 64, 1};
    warpsmith::stream = stream;
    warpsmith::Array<3> query(q, type, {tokens, q_heads, dim}), key(k, type, {tokens, k_heads, dim});
    warpsmith::Array<1> query_scale(q_weight, type, {dim}), key_scale(k_weight, type, {dim});
    warpsmith::Array<2> table(cos_sin, single, {length, dim});
    warpsmith::Array<1> places(positions, whole, {tokens});
    {{ exports[0] }}(query, key, query_scale, key_scale, table, places, eps);
}
