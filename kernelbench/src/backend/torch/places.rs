//! Where outputs lie of which only the addresses are known.
//!
//! A timed request is answered by addresses alone. Their form, and the allocations that they lie in, are those of an
//! earlier request that was answered in full. Nothing here is believed: what lies at such a place when the process has
//! been stopped was computed by then, whatever the process says of it.

use super::values::{Output, OutputTensor};

/// The forms and the allocations of a process's outputs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    slots: Vec<usize>,
    outputs: Vec<Output>,
    addresses: Vec<u64>,
    allocations: Vec<Allocation>,
}

/// Memory of the device that can be opened elsewhere.
#[derive(Clone, Debug, PartialEq)]
struct Allocation {
    base: u64,
    bytes: u64,
    handle: Option<String>,
}

impl Places {
    /// Notes how a request was answered in full.
    pub(crate) fn learn(&mut self, slots: &[usize], outputs: &[Output], addresses: Vec<u64>) {
        let tensors: Vec<&OutputTensor> = outputs.iter().flat_map(Output::tensors).collect();
        for tensor in &tensors {
            self.note(tensor);
        }
        self.slots = slots.to_vec();
        self.outputs = outputs.to_vec();
        // What it names in few bytes must be what it describes: not so where a description is of a copy.
        let described = tensors.iter().map(|tensor| tensor.address);
        self.addresses = if described.eq(addresses.iter().copied()) { addresses } else { vec![] };
    }

    /// The outputs of a request on the same slots, by their addresses alone; `None` where that does not say enough.
    pub(crate) fn at(&self, slots: &[usize], addresses: &[u64]) -> Option<Vec<Output>> {
        if slots.is_empty() {
            return Some(vec![]);
        }
        if slots != self.slots || addresses.len() != self.addresses.len() || addresses.is_empty() {
            return None;
        }
        let mut outputs = self.outputs.clone();
        let mut pairs = outputs.iter_mut().flat_map(Output::tensors_mut).zip(addresses);
        let known = pairs.all(|(tensor, address)| self.put(tensor, *address));
        known.then_some(outputs)
    }

    fn note(&mut self, tensor: &OutputTensor) {
        let Some(at) = tensor.at else { return };
        let base = tensor.address.saturating_sub(at);
        self.allocations.retain(|known| known.base != base);
        let bytes = tensor.room.unwrap_or(0);
        self.allocations.push(Allocation { base, bytes, handle: tensor.handle.clone() });
    }

    /// Moves a tensor to an address; whether that is a place that is known.
    fn put(&self, tensor: &mut OutputTensor, address: u64) -> bool {
        let before = std::mem::replace(&mut tensor.address, address);
        if address == before || tensor.device == "cpu" {
            return true;
        }
        if let Some(inside) = tensor.inside {
            tensor.inside = inside.checked_add(address).and_then(|moved| moved.checked_sub(before));
            return tensor.inside.is_some();
        }
        let end = address.saturating_add(tensor.bytes);
        let around = |known: &&Allocation| known.base <= address && end <= known.base.saturating_add(known.bytes);
        let Some(found) = self.allocations.iter().find(around) else { return false };
        tensor.at = Some(address - found.base);
        tensor.room = Some(found.bytes);
        tensor.handle.clone_from(&found.handle);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::values::{Kind, Written},
        *,
    };

    fn tensor(address: u64, at: u64, room: u64) -> Output {
        Written::Other(Kind::Tensor(OutputTensor {
            shape: vec![25],
            stride: vec![1],
            dtype: "float32".into(),
            device: "cuda".into(),
            address,
            bytes: 100,
            inside: None,
            handle: Some("h".into()),
            at: Some(at),
            room: Some(room),
        }))
    }

    #[test]
    fn an_address_is_placed_in_an_allocation_that_is_known_and_in_no_other() {
        let mut places = Places::default();
        places.learn(&[0, 1], &[tensor(1000, 0, 512), tensor(3000, 200, 512)], vec![1000, 3000]);
        let moved = places.at(&[0, 1], &[1100, 2800]).unwrap_or_default();
        let at: Vec<Option<u64>> = moved.iter().flat_map(Output::tensors).map(|tensor| tensor.at).collect();
        assert_eq!(at, [Some(100), Some(0)]);
        assert_eq!(places.at(&[0, 1], &[1450, 3000]), None, "it would end outside");
        assert_eq!(places.at(&[1, 0], &[1000, 3000]), None, "other slots have other forms");
        assert_eq!(places.at(&[0, 1], &[1000]), None, "an output is missing");
    }
}
