//! Assembly that a script printed: its marked blocks, and which of their instructions may change places (QiMeng-TensorOp §3.3).
//!
//! A line `# block: NAME` begins a block, which goes on to the next such line, to `# end`, or to a label, a directive or a
//! branch. Two instructions of a block may change places where no instruction depends on one that it thereby overtakes:
//! the output stays the same to the bit. An instruction that no table knows never moves, and nothing moves past it.

mod instruction;
mod isa;

pub use isa::Isa;

use instruction::Effects;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// The order of a block's instructions: which of those that were printed stands at each place. Blocks in their printed order
/// are left out.
pub type Orders = BTreeMap<String, Vec<u16>>;

/// Directives that say where code and constants lie. No other is taken: one may read files or hide instructions.
const DIRECTIVES: [&str; 18] = [
    "text", "globl", "global", "hidden", "local", "type", "size", "p2align", "balign", "align", "section", "float",
    "single", "long", "quad", "byte", "word", "zero",
];
/// The longest text, in lines.
const LONGEST: usize = 100_000;

/// A block of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name; where several are printed under one name, the second is `NAME.2`.
    pub name: String,
    /// The lines of its instructions.
    lines: Vec<usize>,
}

impl Block {
    /// How many instructions it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Assembly in an instruction set, with its blocks.
#[derive(Clone, Debug)]
pub struct Assembly {
    isa: Isa,
    lines: Vec<String>,
    blocks: Vec<Block>,
    /// By line; none where nothing may move past it.
    effects: Vec<Option<Effects>>,
}

impl Assembly {
    /// Reads what a script printed.
    ///
    /// # Errors
    /// In words, with the line: a directive that is not taken, several statements on a line, or nothing at all.
    pub fn parse(isa: Isa, text: &str) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(|line| bare(isa, line)).collect();
        if lines.len() > LONGEST {
            return Err(format!("it has {} lines; at most {LONGEST} are taken", lines.len()));
        }
        for (at, line) in lines.iter().enumerate() {
            check(line).map_err(|why| format!("line {}: `{}`: {why}", at + 1, line.trim()))?;
        }
        if !lines.iter().any(|line| is_instruction(line)) {
            return Err("it holds no instruction".to_owned());
        }
        let group = if isa == Isa::Rvv { group(&lines) } else { 1 };
        let effect = |line: &String| is_instruction(line).then(|| Effects::of(isa, line, group)).flatten();
        let effects: Vec<Option<Effects>> = lines.iter().map(effect).collect();
        let blocks = blocks(&lines, &effects);
        Ok(Self { isa, lines, blocks, effects })
    }

    /// Its blocks, in order.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The instruction at a place of a block.
    #[must_use]
    pub fn instruction(&self, block: &str, at: usize) -> Option<&str> {
        self.block(block)?.lines.get(at).map(|line| self.lines[*line].trim())
    }

    fn block(&self, name: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.name == name)
    }

    /// Whether two instructions of a block may change places; in words why not.
    ///
    /// # Errors
    /// There is no such block or place, or an instruction depends on one that it would overtake.
    pub fn may_swap(&self, block: &str, one: usize, other: usize) -> Result<(), String> {
        let found = self.block(block).ok_or_else(|| format!("there is no block `{block}`"))?;
        let (first, last) = (one.min(other), one.max(other));
        if first == last || last >= found.len() {
            return Err(format!("`{block}` has the places 0 to {}: two of them are swapped", found.len().max(1) - 1));
        }
        let depends = |a: usize, b: usize| match (&self.effects[found.lines[a]], &self.effects[found.lines[b]]) {
            (Some(a), Some(b)) => a.depends(b),
            _ => true,
        };
        let stays = (first + 1..=last).find(|at| depends(first, *at)).map(|at| (first, at));
        match stays.or_else(|| (first + 1..last).find(|at| depends(*at, last)).map(|at| (at, last))) {
            None => Ok(()),
            Some((a, b)) => Err(format!("`{block}`: the instructions at {a} and {b} depend on each other")),
        }
    }

    /// The same with two instructions of a block in each other's place.
    ///
    /// # Errors
    /// As [`Self::may_swap`].
    pub fn swapped(&self, block: &str, one: usize, other: usize) -> Result<Self, String> {
        self.may_swap(block, one, other)?;
        let mut swapped = self.clone();
        if let Some(found) = self.block(block) {
            let (one, other) = (found.lines[one], found.lines[other]);
            swapped.lines.swap(one, other);
            swapped.effects.swap(one, other);
        }
        Ok(swapped)
    }

    /// The same with the instructions of some blocks in these orders.
    ///
    /// # Errors
    /// In words: there is no such block, or the order is none of its instructions.
    pub fn ordered(&self, orders: &Orders) -> Result<Self, String> {
        let mut ordered = self.clone();
        for (name, order) in orders {
            let block = self.block(name).ok_or_else(|| format!("there is no block `{name}`"))?;
            let places: BTreeSet<u16> = order.iter().copied().collect();
            if order.len() != block.len()
                || places.len() != block.len()
                || places.iter().any(|at| usize::from(*at) >= block.len())
            {
                return Err(format!("the order of `{name}` is not one of its {} instructions", block.len()));
            }
            for (line, from) in block.lines.iter().zip(order) {
                let from = block.lines[usize::from(*from)];
                ordered.lines[*line].clone_from(&self.lines[from]);
                ordered.effects[*line].clone_from(&self.effects[from]);
            }
        }
        Ok(ordered)
    }

    /// Those of these orders whose blocks read here as they do in `before`: an order belongs to the instructions that it was
    /// found for.
    #[must_use]
    pub fn carried(&self, before: &Self, orders: &Orders) -> Orders {
        let read = |assembly: &Self, name: &str| {
            assembly
                .block(name)
                .map(|block| block.lines.iter().map(|line| assembly.lines[*line].clone()).collect::<Vec<_>>())
        };
        let same = |name: &String| read(self, name).is_some() && read(self, name) == read(before, name);
        orders.iter().filter(|(name, _)| same(name)).map(|(name, order)| (name.clone(), order.clone())).collect()
    }

    /// It as a statement at the outermost level of C and C++.
    #[must_use]
    pub fn in_c(&self) -> String {
        let (before, behind) = self.isa.around();
        let mut text = "__asm__(\n".to_owned();
        let lines = before.lines().chain(self.lines.iter().map(String::as_str)).chain(behind.lines());
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let line = line.trim_end().replace('\\', "\\\\").replace('"', "\\\"");
            // Writing into a string cannot fail.
            let _ = writeln!(text, "\"{line}\\n\"");
        }
        text + ");\n"
    }
}

/// Two places of a block's order changed; the printed order where there was none yet.
pub fn swap_in(orders: &mut Orders, block: &Block, one: usize, other: usize) {
    let printed: Vec<u16> = (0..block.len() as u16).collect();
    let order = orders.entry(block.name.clone()).or_insert_with(|| printed.clone());
    if one < order.len() && other < order.len() {
        order.swap(one, other);
    }
    if *order == printed {
        orders.remove(&block.name);
    }
}

/// A line without its remark; the lines that begin and end blocks stay.
fn bare(isa: Isa, line: &str) -> String {
    if begun(line).is_some() || is_end(line) {
        return line.trim_end().to_owned();
    }
    let trimmed = line.trim_start();
    let remark = trimmed.starts_with('#') || trimmed.starts_with("//");
    let code = if remark { "" } else { line.split_once(isa.remark()).map_or(line, |(code, _)| code) };
    code.trim_end().to_owned()
}

fn of_marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix('#').or_else(|| line.strip_prefix("//")).map(str::trim)
}

fn begun(line: &str) -> Option<&str> {
    of_marker(line)?.strip_prefix("block:").map(str::trim)
}

fn is_end(line: &str) -> bool {
    of_marker(line) == Some("end")
}

fn is_instruction(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with(['.', '#']) && !line.starts_with("//") && !line.contains(':')
        || line.contains("s:[") && !line.ends_with(':')
}

/// Whether a line may stand in what is compiled.
fn check(line: &str) -> Result<(), String> {
    let text = line.trim();
    if text.contains(';') {
        return Err("expected one statement a line".to_owned());
    }
    if text.contains("/*") || text.contains("*/") {
        return Err("expected remarks of one line".to_owned());
    }
    let statement =
        text.rsplit_once(':').map_or(text, |(label, rest)| if label.contains('"') { text } else { rest.trim() });
    let Some(directive) = statement.strip_prefix('.').filter(|_| !text.ends_with(':')) else { return Ok(()) };
    let name = directive.split_whitespace().next().unwrap_or_default();
    if DIRECTIVES.contains(&name) {
        return Ok(());
    }
    Err(format!("the directive `.{name}` is not taken; there are .{}", DIRECTIVES.join(" .")))
}

/// How many registers a vector may span: the largest LMUL that is set anywhere; eight where that is not known.
fn group(lines: &[String]) -> u32 {
    let sets: Vec<&String> = lines.iter().filter(|line| line.trim_start().starts_with("vset")).collect();
    let span = |line: &&String| {
        let words: Vec<&str> = line.split([',', ' ']).map(str::trim).collect();
        let plain = words.contains(&"e32");
        let lmul = words.iter().find_map(|word| match *word {
            "m1" | "mf2" | "mf4" => Some(1),
            "m2" => Some(2),
            "m4" => Some(4),
            _ => None,
        });
        if plain { lmul.unwrap_or(8) } else { 8 }
    };
    sets.iter().map(span).max().unwrap_or(8)
}

/// The blocks, by their markers. What is no instruction, or a branch, ends one.
fn blocks(lines: &[String], effects: &[Option<Effects>]) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let mut open: Option<Block> = None;
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = begun(line) {
            blocks.extend(open.replace(Block { name: name.to_owned(), lines: vec![] }));
        } else if is_end(line)
            || (!line.trim().is_empty() && (!is_instruction(line) || branches(line, effects[at].as_ref())))
        {
            blocks.extend(open.take());
        } else if is_instruction(line)
            && let Some(block) = &mut open
        {
            block.lines.push(at);
        }
    }
    blocks.extend(open);
    blocks.retain(|block| !block.is_empty() && u16::try_from(block.len()).is_ok());
    name_apart(&mut blocks);
    blocks
}

/// Whether an unknown instruction may leave the block: jumps, calls and returns begin with one of these letters.
fn branches(line: &str, effects: Option<&Effects>) -> bool {
    effects.is_none() && line.trim_start().starts_with(['j', 'b', 'c', 'r', 't'])
}

fn name_apart(blocks: &mut [Block]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for block in blocks {
        let times = seen.entry(block.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            block.name = format!("{}.{times}", block.name);
        }
    }
}

#[cfg(test)]
mod tests;
