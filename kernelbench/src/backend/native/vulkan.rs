//! A Vulkan driver on this processor as the device of a child: it runs the shaders of kernels in HLSL in the child's arguments.
//!
//! The host region asks for dispatches through a table of functions; what a request asks for is one command buffer, in which
//! each dispatch waits for the one before. The driver's device imports the segment, so that nothing is copied.
#![expect(unsafe_code, reason = "calls the driver, and is called by foreign code")]

use crate::sandbox::kernel_child::{Calls, DeviceError};
use ash::{Device, Entry, Instance, ext, vk};
use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_void},
    ptr::NonNull,
    time::Instant,
};

/// The most buffers that a shader may have.
const MOST_BUFFERS: usize = 16;
/// The most constants, of four bytes each: what every driver has room for (`maxPushConstantsSize`).
const MOST_CONSTANTS: usize = 32;
/// Dispatches of one request.
const MOST_DISPATCHES: u32 = 16_384;
/// What is said of a driver that is not there.
pub(super) const MISSING: &str = "there is no Vulkan driver for this processor: install llvmpipe (Debian: apt install mesa-vulkan-drivers libvulkan1)";

/// What the host region sees of a device, and what it leads to.
#[repr(C)]
struct Table {
    dispatch: unsafe extern "C" fn(
        *mut Table,
        *const Shader,
        *const c_char,
        *const u64,
        *const u64,
        usize,
        *const u32,
        usize,
    ),
    driver: *mut Driver,
}

/// A shader as the unit of a candidate's shaders has it.
#[repr(C)]
struct Shader {
    name: *const c_char,
    code: *const u32,
    bytes: usize,
}

/// A shader that is ready to run: what its code, buffers and constants are told by.
type Key = (usize, usize, usize);

/// A shader that is ready to run.
#[derive(Clone, Copy)]
struct Pipeline {
    shader: vk::Pipeline,
    layout: vk::PipelineLayout,
    set: vk::DescriptorSetLayout,
}

/// A driver with its device, in whose memory the arguments lie. Both live as long as the process.
pub(super) struct Vulkan {
    table: NonNull<Table>,
    driver: NonNull<Driver>,
}

struct Driver {
    name: String,
    limits: vk::PhysicalDeviceLimits,
    segment: (vk::Buffer, u64),
    device: Device,
    queue: vk::Queue,
    commands: vk::CommandBuffer,
    fence: vk::Fence,
    sets: vk::DescriptorPool,
    pipelines: HashMap<Key, Pipeline>,
    /// What went wrong first in the calls that are being recorded.
    error: Option<DeviceError>,
    _instance: Instance,
    _entry: Entry,
}

fn said(what: &str) -> impl Fn(vk::Result) -> String + '_ {
    move |error| format!("Vulkan cannot {what}: {error}")
}

impl Vulkan {
    /// Opens the first driver that computes on this processor, with this segment as the memory of all arrays.
    pub(super) fn open(base: NonNull<u8>, bytes: usize) -> Result<Self, String> {
        let mut driver = Driver::open(base, bytes)?;
        // The driver has a thread, which takes memory and its signals when it is scheduled first: late on a busy machine, and
        // behind the filter of system calls that was its end. Once it has worked off a submission, of nothing, it is past that.
        driver.begin()?;
        driver.end()?;
        let driver = NonNull::from(Box::leak(Box::new(driver)));
        let table = NonNull::from(Box::leak(Box::new(Table { dispatch, driver: driver.as_ptr() })));
        Ok(Self { table, driver })
    }

    /// What the driver calls its device.
    pub(super) fn name(&mut self) -> String {
        self.driver().name.clone()
    }

    fn driver(&mut self) -> &mut Driver {
        // SAFETY: it lives as long as the process, and nothing borrows it while the host region runs.
        unsafe { self.driver.as_mut() }
    }

    /// What the host region gets.
    pub(super) fn handle(&self) -> *mut c_void {
        self.table.as_ptr().cast()
    }

    /// Makes these calls, runs what they ask for, and waits; how long all of it took, in nanoseconds.
    pub(super) fn run(&mut self, calls: &Calls<'_>) -> Result<u64, DeviceError> {
        let start = Instant::now();
        let refused = |text| DeviceError { code: 1, text };
        self.driver().begin().map_err(refused)?;
        let called = calls();
        let ran = self.driver().end();
        called?;
        if let Some(error) = self.driver().error.take() {
            return Err(error);
        }
        ran.map_err(refused)?;
        Ok(start.elapsed().as_nanos() as u64)
    }
}

/// What the host region calls: a dispatch of a shader.
///
/// # Safety
/// The pointers are those of `ws_dispatch` in `hlsl.h`; a candidate that passes others harms its own process.
unsafe extern "C" fn dispatch(
    table: *mut Table,
    shader: *const Shader,
    name: *const c_char,
    groups: *const u64,
    buffers: *const u64,
    buffer_count: usize,
    constants: *const u32,
    constant_count: usize,
) {
    // SAFETY: see above; the driver outlives the table.
    let (driver, shader, name, groups) = unsafe {
        let name = CStr::from_ptr(name).to_string_lossy();
        let groups = [*groups, *groups.add(1), *groups.add(2)];
        (&mut *(*table).driver, &*shader, name, groups)
    };
    if driver.error.is_some() {
        return;
    }
    let refused = |why: String| Err(format!("dispatch of {name}: {why}"));
    let most = u64::from(driver.limits.max_compute_work_group_count.into_iter().min().unwrap_or_default());
    let asked = match (buffer_count, constant_count) {
        _ if shader.name.is_null() => refused("the device region has no such shader".to_owned()),
        (buffers, _) if buffers > MOST_BUFFERS => refused(format!("{buffers} buffers, of at most {MOST_BUFFERS}")),
        (_, constants) if constants > MOST_CONSTANTS => {
            refused(format!("{constants} constants, of at most {MOST_CONSTANTS}"))
        }
        _ if groups.iter().any(|count| *count == 0 || *count > most) => {
            refused(format!("{groups:?} thread groups, of 1 to {most} in each direction"))
        }
        _ => {
            let of = |data: *const u64, count| {
                if count == 0 {
                    &[][..]
                } else {
                    // SAFETY: see above.
                    unsafe { std::slice::from_raw_parts(data, count) }
                }
            };
            let buffers = of(buffers, buffer_count);
            let constants: &[u32] = if constant_count == 0 {
                &[]
            } else {
                // SAFETY: see above.
                unsafe { std::slice::from_raw_parts(constants, constant_count) }
            };
            driver.dispatch(shader, groups.map(|count| count as u32), buffers, constants).or_else(refused)
        }
    };
    driver.error = asked.err().map(|text| DeviceError { code: 1, text });
}

impl Driver {
    fn open(base: NonNull<u8>, bytes: usize) -> Result<Self, String> {
        // SAFETY: the system's own loader and driver, before any foreign code is in this process.
        unsafe {
            let entry = Entry::load().map_err(|why| format!("{MISSING} ({why})"))?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
            let wanted = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&wanted, None).map_err(|why| format!("{MISSING} ({why})"))?;
            let all = instance.enumerate_physical_devices().map_err(said("list devices"))?;
            let on_this_processor = |device: &vk::PhysicalDevice| {
                instance.get_physical_device_properties(*device).device_type == vk::PhysicalDeviceType::CPU
            };
            let chosen = all.into_iter().find(on_this_processor).ok_or(MISSING)?;
            let properties = instance.get_physical_device_properties(chosen);
            let name = properties.device_name_as_c_str().map_or_else(|_| String::new(), |c| c.to_string_lossy().into());
            let (device, queue) = device(&instance, chosen)?;
            let segment = (imported(&device, base, bytes)?, bytes as u64);
            let pool = vk::CommandPoolCreateInfo::default().flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
            let pool = device.create_command_pool(&pool, None).map_err(said("make a command pool"))?;
            let one = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
            let commands = device.allocate_command_buffers(&one).map_err(said("make a command buffer"))?[0];
            let fence = device.create_fence(&vk::FenceCreateInfo::default(), None).map_err(said("make a fence"))?;
            let buffers = MOST_DISPATCHES * MOST_BUFFERS as u32;
            let sizes =
                [vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(buffers)];
            let sets = vk::DescriptorPoolCreateInfo::default().max_sets(MOST_DISPATCHES).pool_sizes(&sizes);
            let sets = device.create_descriptor_pool(&sets, None).map_err(said("make descriptors"))?;
            Ok(Self {
                name,
                limits: properties.limits,
                segment,
                device,
                queue,
                commands,
                fence,
                sets,
                pipelines: HashMap::new(),
                error: None,
                _instance: instance,
                _entry: entry,
            })
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        self.error = None;
        let once = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: nothing of the last request is under way.
        unsafe {
            let free = vk::DescriptorPoolResetFlags::empty();
            self.device.reset_descriptor_pool(self.sets, free).map_err(said("free descriptors"))?;
            self.device.begin_command_buffer(self.commands, &once).map_err(said("record"))
        }
    }

    fn end(&mut self) -> Result<(), String> {
        let commands = [self.commands];
        let submitted = [vk::SubmitInfo::default().command_buffers(&commands)];
        // SAFETY: recorded between `begin` and here.
        unsafe {
            self.device.end_command_buffer(self.commands).map_err(said("record"))?;
            if self.error.is_some() {
                return Ok(());
            }
            self.device.queue_submit(self.queue, &submitted, self.fence).map_err(said("submit"))?;
            self.device.wait_for_fences(&[self.fence], true, u64::MAX).map_err(said("wait"))?;
            self.device.reset_fences(&[self.fence]).map_err(said("wait"))
        }
    }

    fn dispatch(
        &mut self,
        shader: &Shader,
        groups: [u32; 3],
        buffers: &[u64],
        constants: &[u32],
    ) -> Result<(), String> {
        let Pipeline { shader: ready, layout, set } = self.pipeline(shader, buffers.len(), constants.len())?;
        let (segment, bytes) = self.segment;
        let range = |offset: &u64| {
            let left = bytes.checked_sub(*offset).filter(|left| *left > 0);
            let left = left.ok_or("a buffer that is none of its arguments")?;
            let range = left.min(self.limits.max_storage_buffer_range.into());
            Ok::<_, String>([vk::DescriptorBufferInfo::default().buffer(segment).offset(*offset).range(range)])
        };
        let ranges = buffers.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: recorded between `begin` and `end`; the ranges lie in the segment.
        unsafe {
            let layouts = [set];
            let one = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.sets).set_layouts(&layouts);
            let sets = self.device.allocate_descriptor_sets(&one).map_err(said("make descriptors"))?;
            for (at, range) in ranges.iter().enumerate() {
                let write = vk::WriteDescriptorSet::default().dst_set(sets[0]).dst_binding(at as u32);
                let write = write.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).buffer_info(range);
                self.device.update_descriptor_sets(&[write], &[]);
            }
            let (device, commands, compute) = (&self.device, self.commands, vk::PipelineBindPoint::COMPUTE);
            device.cmd_bind_pipeline(commands, compute, ready);
            device.cmd_bind_descriptor_sets(commands, compute, layout, 0, &sets, &[]);
            if !constants.is_empty() {
                let bytes: Vec<u8> = constants.iter().flat_map(|word| word.to_ne_bytes()).collect();
                device.cmd_push_constants(commands, layout, vk::ShaderStageFlags::COMPUTE, 0, &bytes);
            }
            device.cmd_dispatch(commands, groups[0], groups[1], groups[2]);
            let all = vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE;
            let barrier =
                [vk::MemoryBarrier::default().src_access_mask(vk::AccessFlags::SHADER_WRITE).dst_access_mask(all)];
            let (stage, none) = (vk::PipelineStageFlags::COMPUTE_SHADER, vk::DependencyFlags::empty());
            device.cmd_pipeline_barrier(commands, stage, stage, none, &barrier, &[], &[]);
        }
        Ok(())
    }

    fn pipeline(&mut self, shader: &Shader, buffers: usize, constants: usize) -> Result<Pipeline, String> {
        let key = (shader.code as usize, buffers, constants);
        if let Some(known) = self.pipelines.get(&key) {
            return Ok(*known);
        }
        let compute = vk::ShaderStageFlags::COMPUTE;
        let binding = |at| {
            let binding = vk::DescriptorSetLayoutBinding::default().binding(at).stage_flags(compute);
            binding.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(1)
        };
        let bindings: Vec<_> = (0..buffers as u32).map(binding).collect();
        let range = [vk::PushConstantRange::default().stage_flags(compute).size(4 * constants as u32)];
        // SAFETY: the code is what a compiler of shaders made, as the candidate's own object holds it.
        unsafe {
            let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set = self.device.create_descriptor_set_layout(&set, None).map_err(said("lay out buffers"))?;
            let sets = [set];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            let layout = if constants == 0 { layout } else { layout.push_constant_ranges(&range) };
            let layout = self.device.create_pipeline_layout(&layout, None).map_err(said("lay out constants"))?;
            let code = std::slice::from_raw_parts(shader.code, shader.bytes / 4);
            let module = vk::ShaderModuleCreateInfo::default().code(code);
            let module = self.device.create_shader_module(&module, None).map_err(said("take the shader"))?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(compute).module(module);
            let stage = stage.name(CStr::from_ptr(shader.name));
            let wanted = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &wanted, None);
            let made = made.map_err(|(_, why)| said("compile the shader")(why))?;
            let pipeline = Pipeline { shader: made[0], layout, set };
            self.pipelines.insert(key, pipeline);
            Ok(pipeline)
        }
    }
}

/// A device with one queue, which takes memory from elsewhere, and knows half precision where it can.
///
/// # Safety
/// Both are valid.
unsafe fn device(instance: &Instance, chosen: vk::PhysicalDevice) -> Result<(Device, vk::Queue), String> {
    let mut known_16 = vk::PhysicalDevice16BitStorageFeatures::default();
    let mut known_half = vk::PhysicalDeviceShaderFloat16Int8Features::default();
    let mut known = vk::PhysicalDeviceFeatures2::default().push_next(&mut known_16).push_next(&mut known_half);
    // SAFETY: as the caller says.
    unsafe { instance.get_physical_device_features2(chosen, &mut known) };
    let (storage, half) = (known_16.storage_buffer16_bit_access, known_half.shader_float16);
    let mut wanted_16 = vk::PhysicalDevice16BitStorageFeatures::default().storage_buffer16_bit_access(storage == 1);
    let mut wanted_half = vk::PhysicalDeviceShaderFloat16Int8Features::default().shader_float16(half == 1);
    // SAFETY: as the caller says.
    unsafe {
        let families = instance.get_physical_device_queue_family_properties(chosen);
        let family = families.iter().position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let family = family.ok_or("Vulkan's driver computes nothing")? as u32;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let extensions = [ext::external_memory_host::NAME.as_ptr()];
        let wanted = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        let wanted = wanted.push_next(&mut wanted_16).push_next(&mut wanted_half);
        let device = instance.create_device(chosen, &wanted, None).map_err(said("open its device"))?;
        let queue = device.get_device_queue(family, 0);
        Ok((device, queue))
    }
}

/// A buffer over memory of this process.
///
/// # Safety
/// The memory is this process's for as long as it lives.
unsafe fn imported(device: &Device, base: NonNull<u8>, bytes: usize) -> Result<vk::Buffer, String> {
    let from = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(from);
    let wanted = vk::BufferCreateInfo::default().size(bytes as u64).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    let mut host = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(from).host_pointer(base.as_ptr().cast());
    let memory = vk::MemoryAllocateInfo::default().allocation_size(bytes as u64).push_next(&mut host);
    // SAFETY: as the caller says.
    unsafe {
        let buffer = device.create_buffer(&wanted.push_next(&mut external), None).map_err(said("make a buffer"))?;
        let memory = device.allocate_memory(&memory, None).map_err(said("take the arguments' memory"))?;
        device.bind_buffer_memory(buffer, memory, 0).map_err(said("take the arguments' memory"))?;
        Ok(buffer)
    }
}
