//! PEAK's algebra of tiles (§2.2) as a constraint of a tuning space: are its configurations those whose tiles cover an output
//! exactly once?

use std::collections::BTreeSet;
use warpsmith_kernelbench::{Bindings, Parameter, load};

/// The output, and the threads that run in step.
const M: i64 = 8;
const N: i64 = 16;
const WARP: i64 = 4;

/// Tiles of a block (T), of a warp (W) and of a thread (R) of an output of 8 by 16: blocks of at most four warps of four threads.
const SPACE: &str = r#"
T_M = [2, 4, 8, 6]
T_N = [4, 8, 16, 12]
W_M = [1, 2, 4, 3]
W_N = [2, 4, 8, 6]
R_M = [1, 2, 4]
R_N = { values = [1, 2, 4], constraint = "8 % T_M == 0 and 16 % T_N == 0 and T_M % W_M == 0 and T_N % W_N == 0 and W_M % R_M == 0 and W_N % R_N == 0 and (W_M / R_M) * (W_N / R_N) == 4 and (T_M / W_M) * (T_N / W_N) <= 4" }
"#;

const NAMES: [&str; 6] = ["T_M", "T_N", "W_M", "W_N", "R_M", "R_N"];

/// Whether blocks, warps, threads and a thread's elements, counted as the algebra says, reach each element of the output once.
fn covers([t_m, t_n, w_m, w_n, r_m, r_n]: [i64; 6]) -> bool {
    let (blocks_m, blocks_n, warps_m, warps_n, lanes_n) = (M / t_m, N / t_n, t_m / w_m, t_n / w_n, w_n / r_n);
    let mut reached = BTreeSet::new();
    let each = |count: i64| 0..count;
    for (block, warp) in
        each(blocks_m * blocks_n).flat_map(|block| each(warps_m * warps_n).map(move |warp| (block, warp)))
    {
        // The threads of a warp are what the device says, and never what a tile would like.
        for (lane, element) in each(WARP).flat_map(|lane| each(r_m * r_n).map(move |element| (lane, element))) {
            let side = lanes_n.max(1);
            // Its place in the warp's tile, and in the block's; each stays in the tile that it belongs to.
            let [y, x] = [lane / side * r_m + element / r_n, lane % side * r_n + element % r_n];
            let [row, column] = [warp / warps_n * w_m + y, warp % warps_n * w_n + x];
            let inside = y < w_m && x < w_n && row < t_m && column < t_n;
            let place = (block / blocks_n * t_m + row, block % blocks_n * t_n + column);
            if !inside || !reached.insert(place) {
                return false;
            }
        }
    }
    i64::try_from(reached.len()) == Ok(M * N)
}

#[test]
fn the_configurations_are_the_tuples_of_tiles_that_cover_the_output_once() {
    let space = load::parameters(&SPACE.parse().unwrap()).unwrap();
    let number = |value: &Parameter| value.to_string().parse::<i64>().unwrap();
    let tuple = |bindings: &Bindings| NAMES.map(|name| number(&bindings[name]));
    let valid: BTreeSet<[i64; 6]> = space.configurations().unwrap().iter().map(tuple).collect();
    let values = NAMES.map(|name| space.grid[name].iter().map(number).collect::<Vec<_>>());
    let mut broken = 0;
    let mut at = [0; 6];
    loop {
        let here: [i64; 6] = std::array::from_fn(|i| values[i][at[i]]);
        let fits = (here[0] / here[2]) * (here[1] / here[3]) <= 4;
        assert_eq!(valid.contains(&here), fits && covers(here), "{NAMES:?} {here:?}");
        broken += usize::from(!valid.contains(&here));
        let Some(next) = (0..6).find(|&i| at[i] + 1 < values[i].len()) else { break };
        at[next] += 1;
        at[..next].fill(0);
    }
    assert_eq!(valid.len() + broken, 4 * 4 * 4 * 4 * 3 * 3);
    assert!(valid.len() > 20, "{}", valid.len());
}
