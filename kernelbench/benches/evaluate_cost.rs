//! What does one evaluation cost, stage by stage, in a running program?
//!
//! `TIMES=5 PROFILE=1 cargo bench -p warpsmith-kernelbench --bench evaluate_cost -- python3 cuda:0 PROBLEM.py CANDIDATE.py...`
//! (`cpu` works too): the example `evaluate`, whose last line has the stages.

#[path = "../examples/evaluate.rs"]
mod evaluate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    evaluate::main()
}
