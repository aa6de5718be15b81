//! Profiles with a known answer

use rand::{Rng, SeedableRng, rngs::StdRng};
use warpsmith_selection::table::{Launch, Measured, Profiled, Setup};

/// Kernels of a task.
pub(crate) const KERNELS: usize = 10;

/// What a column does with a kernel's time (from 0, the fastest, to 1) in a task, given noise around 0.
pub(crate) type Plant = (&'static str, &'static str, fn(usize, f64, f64) -> Option<f64>);

/// The columns whose fate is known.
pub(crate) const PLANTED: [Plant; 12] = [
    ("a__up.sum", "byte", |_, time, noise| Some(time + 0.2 * noise)),
    ("a__down.avg", "", |_, time, noise| Some(5.0 - time + 0.2 * noise)),
    ("a__weaker.avg", "", |_, time, noise| Some(time + 0.9 * noise)),
    ("b__alias_of_up.max", "", |_, _, _| None),
    ("c__flips.avg", "", |task, time, noise| Some(if task % 2 == 0 { time } else { -time } + 0.2 * noise)),
    ("d__one_task.avg", "", |task, time, noise| Some(if task == 0 { time + 0.2 * noise } else { 7.0 })),
    ("e__constant.avg", "%", |_, _, _| Some(3.0)),
    ("f__missing.avg", "", |_, _, _| None),
    ("gpu__time_duration.sum", "ns", |_, time, _| Some(1.0 + 9.0 * time)),
    ("h__the_time_itself.avg", "", |_, time, _| Some(2.0 + 18.0 * time)),
    ("device__attribute_clock_rate", "hz", |_, time, _| Some(time)),
    ("i__mixed_units.sum", "", |_, time, noise| Some(1.0 + time + 0.1 * noise)),
];

/// Profiles of this many tasks with the planted columns and as many that are noise.
pub(crate) fn profiles(tasks: usize, noise_columns: usize, seed: u64) -> Vec<Profiled> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut profiles = vec![];
    for task in 0..tasks {
        for kernel in 0..KERNELS {
            let time = (kernel as f64 / (KERNELS - 1) as f64 + 0.03 * random.random::<f64>()).min(1.0);
            profiles.push(profiled(task, kernel, time, noise_columns, &mut random));
        }
    }
    profiles
}

fn profiled(task: usize, kernel: usize, time: f64, noise_columns: usize, random: &mut StdRng) -> Profiled {
    let mut noise = || random.random::<f64>() - 0.5;
    let mut measured: Vec<Measured> = vec![];
    for (metric, unit, of) in PLANTED {
        let value = of(task, time, noise());
        measured.push(Measured { metric: metric.into(), unit: unit.into(), value });
    }
    measured[3].value = measured[0].value.map(|value| 100.0 - 2.0 * value);
    if kernel.is_multiple_of(2) {
        measured[11] = Measured { unit: "Kbyte".into(), ..measured[11].clone() };
    } else {
        let bytes = measured[11].value.map(|value| value * 1000.0);
        measured[11] = Measured { unit: "byte".into(), value: bytes, ..measured[11].clone() };
    }
    for column in 0..noise_columns {
        let missing = (column + kernel * 7 + task).is_multiple_of(41);
        let value = noise();
        let value = (!missing).then_some(value);
        measured.push(Measured { metric: format!("n__{column:04}.avg"), unit: String::new(), value });
    }
    Profiled {
        task: format!("task{task}"),
        kernel: format!("{kernel:02x}{task:02x}"),
        kernel_name: "k".into(),
        launch: Launch::default(),
        runtime_ns: 1000.0 + 9000.0 * time,
        setup: Setup { architecture: "sm_90".into(), gpu: "G".into(), driver: "1".into(), ncu: "2".into() },
        measured,
    }
}
