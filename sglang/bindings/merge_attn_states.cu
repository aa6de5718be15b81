extern "C" void {{ entry }}({{ parameters }}) {
    constexpr at::ScalarType type = at::ScalarType::{{ torch }}, single = at::ScalarType::Float;
    warpsmith::stream = stream;
    merge_state_v2({v_a, type, {tokens, heads, dim}}, {s_a, single, {tokens, heads}}, {v_b, type, {tokens, heads, dim}},
                   {s_b, single, {tokens, heads}}, {v_merged, type, {tokens, heads, dim}},
                   {s_merged, single, {tokens, heads}});
}
