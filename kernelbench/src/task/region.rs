//! Regions of a kernel context: its macros, its device code and its host code (PEAK §3.2).
//!
//! A line `// region: NAME` begins one, which goes on to the next such line. What stands before the first is the preamble,
//! which nobody rewrites. A source without such a line has no regions and is a whole file, as before.

use crate::result::candidate::{Candidate, Part};

/// The regions, each of which a source that has any has once.
pub const REGIONS: [&str; 3] = ["macros", "device", "host"];
/// What stands before the first region.
pub const PREAMBLE: &str = "preamble";
/// Hand-written text that transformations bring along; it stands before the first region, and nobody rewrites it.
pub const IMPORTS: &str = "imports";
/// What a line that begins a region starts with.
pub const MARKER: &str = "// region:";

/// Why a source's regions cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// There is no such region.
    #[error("line {line}: `{MARKER} {name}` names no region; the regions are macros, device and host")]
    Unknown {
        /// The line, from 1.
        line: usize,
        /// What it names.
        name: String,
    },
    /// It begins a second time.
    #[error("line {line}: the region {name} begins a second time; each region stands in one place")]
    Twice {
        /// The line, from 1.
        line: usize,
        /// The region.
        name: String,
    },
    /// It is missing beside others.
    #[error("there is no region {0}: begin it with a line `{MARKER} {0}`, even where it is empty")]
    Missing(&'static str),
}

/// The region that a line begins, if it begins one.
#[must_use]
pub fn marker(line: &str) -> Option<&str> {
    line.trim().strip_prefix(MARKER).map(str::trim)
}

/// The parts of a source: its preamble, where there is one, and its regions, in their order; none where no line marks one.
///
/// # Errors
/// A region that is unknown, begins twice, or is missing beside others.
pub fn regions(source: &str) -> Result<Vec<Part>, RegionError> {
    let mut parts = vec![Part { region: PREAMBLE.to_owned(), text: String::new() }];
    for (at, line) in source.lines().enumerate() {
        match marker(line) {
            None => parts.last_mut().into_iter().for_each(|part| part.text.extend([line, "\n"])),
            Some(name) => {
                let (line, name) = (at + 1, name.to_owned());
                if !REGIONS.contains(&name.as_str()) {
                    return Err(RegionError::Unknown { line, name });
                }
                if parts.iter().any(|part| part.region == name) {
                    return Err(RegionError::Twice { line, name });
                }
                parts.push(Part { region: name, text: String::new() });
            }
        }
    }
    if parts.len() == 1 {
        return Ok(vec![]);
    }
    if let Some(missing) = REGIONS.iter().find(|name| !parts.iter().any(|part| part.region == **name)) {
        return Err(RegionError::Missing(missing));
    }
    parts.retain(|part| part.region != PREAMBLE || !part.text.trim().is_empty());
    Ok(parts)
}

/// Parts as one source with a line that begins each region: what [`regions`] reads.
#[must_use]
pub fn marked(parts: &[Part]) -> String {
    let marked = |part: &Part| {
        let line = if part.region == PREAMBLE { String::new() } else { format!("{MARKER} {}\n", part.region) };
        let end = if part.text.is_empty() || part.text.ends_with('\n') { "" } else { "\n" };
        format!("{line}{}{end}", part.text)
    };
    parts.iter().map(marked).collect()
}

impl Candidate {
    /// The text of one of its regions.
    #[must_use]
    pub fn region(&self, region: &str) -> Option<&str> {
        self.parts().iter().find(|part| part.region == region).map(|part| part.text.as_str())
    }

    /// The same with another text in one region, unbound; every other part is the same, byte for byte.
    #[must_use]
    pub fn with_region(&self, region: &str, text: &str) -> Self {
        let mut parts = self.parts().to_vec();
        if let Some(part) = parts.iter_mut().find(|part| part.region == region) {
            text.clone_into(&mut part.text);
        }
        Self::of_parts(parts)
    }

    /// The same with a hand-written text among its imports, unbound; one that it has already is not imported again.
    #[must_use]
    pub fn with_import(&self, text: &str) -> Self {
        let mut parts = self.parts().to_vec();
        if let Some(imports) = parts.iter_mut().find(|part| part.region == IMPORTS) {
            if !imports.text.contains(text) {
                imports.text.push_str(text);
            }
        } else {
            let at = usize::from(parts.first().is_some_and(|part| part.region == PREAMBLE));
            parts.insert(at, Part { region: IMPORTS.to_owned(), text: text.to_owned() });
        }
        Self::of_parts(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "#include <a.h>\n// region: macros\n// region: device\nint f();\n  // region:host\nint g() {\n}\n";

    fn names(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(|part| part.region.as_str()).collect()
    }

    #[test]
    fn a_source_falls_into_its_preamble_and_its_regions_and_comes_back() {
        let parts = regions(SOURCE).unwrap();
        assert_eq!(names(&parts), ["preamble", "macros", "device", "host"]);
        assert_eq!((parts[1].text.as_str(), parts[3].text.as_str()), ("", "int g() {\n}\n"));
        assert_eq!(regions(&marked(&parts)).unwrap(), parts);
        assert_eq!(regions("int f();\n").unwrap(), vec![]);
    }

    #[test]
    fn an_unknown_a_second_and_a_missing_region_are_told() {
        for (old, new, why) in [
            (
                "macros",
                "makros",
                "line 2: `// region: makros` names no region; the regions are macros, device and host",
            ),
            ("macros", "device", "line 3: the region device begins a second time; each region stands in one place"),
            (
                "// region: macros\n",
                "",
                "there is no region macros: begin it with a line `// region: macros`, even where it is empty",
            ),
        ] {
            assert_eq!(regions(&SOURCE.replacen(old, new, 1)).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn one_region_is_rewritten_and_the_others_stay_as_they_are() {
        let before = Candidate::of_parts(regions(SOURCE).unwrap());
        let after = before.with_region("device", "int h();\n");
        assert_eq!(after.region("device"), Some("int h();\n"));
        for (old, new) in before.parts().iter().zip(after.parts()).filter(|(old, _)| old.region != "device") {
            assert_eq!(old, new);
        }
    }

    #[test]
    fn what_is_imported_stands_once_behind_the_preamble() {
        let twice = Candidate::of_parts(regions(SOURCE).unwrap()).with_import("int i;\n").with_import("int i;\n");
        assert_eq!(names(twice.parts()), ["preamble", "imports", "macros", "device", "host"]);
        assert_eq!(twice.region(IMPORTS), Some("int i;\n"));
        assert_eq!(twice.with_import("int j;\n").region(IMPORTS), Some("int i;\nint j;\n"));
    }
}
