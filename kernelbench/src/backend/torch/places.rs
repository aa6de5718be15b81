//! Where do outputs lie of which only the addresses are known?
//!
//! A timed request is answered by addresses alone. Their form, and the allocations that they lie in, are those of an
//! earlier request that was answered in full. Nothing here is believed: what lies at such a place when the process has
//! been stopped was computed by then, whatever the process says of it.

use serde_json::{Value, json};

/// The forms and the allocations of a process's outputs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    slots: Vec<usize>,
    outputs: Vec<Value>,
    addresses: Vec<u64>,
    allocations: Vec<Allocation>,
}

/// Memory of the device that can be opened elsewhere.
#[derive(Clone, Debug, PartialEq)]
struct Allocation {
    base: u64,
    bytes: u64,
    handle: Value,
}

impl Places {
    /// Notes what a request was answered in full.
    pub(crate) fn learn(&mut self, slots: &[usize], outputs: &[Value], addresses: Vec<u64>) {
        let mut described = vec![];
        for output in outputs {
            let mut output = output.clone();
            each_tensor(&mut output, &mut |spec| {
                described.push(number(spec, "address"));
                self.note(spec);
            });
        }
        self.slots = slots.to_vec();
        self.outputs = outputs.to_vec();
        // What it names in few bytes must be what it describes: not so where a description is of a copy.
        self.addresses = if described == addresses { addresses } else { vec![] };
    }

    /// The outputs of a request on the same slots, by their addresses alone; `None` where that does not say enough.
    pub(crate) fn at(&self, slots: &[usize], addresses: &[u64]) -> Option<Vec<Value>> {
        if slots.is_empty() {
            return Some(vec![]);
        }
        if slots != self.slots || addresses.len() != self.addresses.len() || addresses.is_empty() {
            return None;
        }
        let (mut outputs, mut next, mut known) = (self.outputs.clone(), addresses.iter(), true);
        for output in &mut outputs {
            each_tensor(output, &mut |spec| known &= next.next().is_some_and(|at| self.put(spec, *at)));
        }
        known.then_some(outputs)
    }

    fn note(&mut self, spec: &Value) {
        let (Some(at), handle) = (spec["at"].as_u64(), &spec["handle"]) else { return };
        let base = number(spec, "address").saturating_sub(at);
        self.allocations.retain(|known| known.base != base);
        self.allocations.push(Allocation { base, bytes: number(spec, "room"), handle: handle.clone() });
    }

    /// Moves a tensor to an address; whether that is a place that is known.
    fn put(&self, spec: &mut Value, address: u64) -> bool {
        let before = number(spec, "address");
        if address == before {
            return true;
        }
        spec["address"] = json!(address);
        if spec["device"] == "cpu" {
            return true;
        }
        if let Some(inside) = spec["inside"].as_u64() {
            let moved = (inside + address).checked_sub(before);
            spec["inside"] = json!(moved);
            return moved.is_some();
        }
        let end = address.saturating_add(number(spec, "bytes"));
        let around = |known: &&Allocation| known.base <= address && end <= known.base.saturating_add(known.bytes);
        let Some(found) = self.allocations.iter().find(around) else { return false };
        spec["at"] = json!(address - found.base);
        spec["room"] = json!(found.bytes);
        spec["handle"] = found.handle.clone();
        true
    }
}

/// The bytes of each tensor of an output that was described.
pub(crate) fn sizes(output: &Value) -> Vec<u64> {
    let mut found = vec![];
    each_tensor(&mut output.clone(), &mut |spec| found.push(number(spec, "bytes")));
    found
}

fn number(spec: &Value, name: &str) -> u64 {
    spec[name].as_u64().unwrap_or(0)
}

/// Visits the tensors of an output as it was written down, in order.
fn each_tensor(output: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    match output {
        Value::Array(items) => items.iter_mut().for_each(|item| each_tensor(item, visit)),
        Value::Object(object) => {
            if let Some(spec) = object.get_mut("tensor") {
                visit(spec);
            } else if let Some(items) = object.get_mut("tuple") {
                each_tensor(items, visit);
            } else if let Some(Value::Array(pairs)) = object.get_mut("dict") {
                for pair in pairs {
                    each_tensor(&mut pair[1], visit);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(address: u64, at: u64, room: u64) -> Value {
        json!({"tensor": {
            "device": "cuda", "address": address, "bytes": 100, "at": at, "room": room, "handle": "h",
        }})
    }

    #[test]
    fn an_address_is_placed_in_an_allocation_that_is_known_and_in_no_other() {
        let mut places = Places::default();
        places.learn(&[0, 1], &[tensor(1000, 0, 512), tensor(3000, 200, 512)], vec![1000, 3000]);
        let moved = places.at(&[0, 1], &[1100, 2800]).unwrap_or_default();
        assert_eq!(moved.iter().map(|one| one["tensor"]["at"].as_u64()).collect::<Vec<_>>(), [Some(100), Some(0)]);
        assert_eq!(places.at(&[0, 1], &[1450, 3000]), None, "it would end outside");
        assert_eq!(places.at(&[1, 0], &[1000, 3000]), None, "other slots have other forms");
        assert_eq!(places.at(&[0, 1], &[1000]), None, "an output is missing");
    }
}
