//! The real things behind the ports: workshops and models.

mod machine;
mod model;
mod person;

pub use machine::{
    CHILD, Kind, cache_folder, compiled, cuda, cuda_options, cuda_reading, gpu_arch, has_gpu, is_problem,
    largest_case_for, metrics, native, of_each, torch, vulkan, workshop,
};
pub use model::{Answering, unpriced};
pub use person::Hand;
