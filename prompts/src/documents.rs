//! Documentation that is too long for a prompt: a folder's texts in pages, of which a Coder reads one at a time (Hawkeye, G.1:
//! the `read_context` of the agents that are given documentation).

use crate::words::tokens;
use std::collections::BTreeSet;

/// Tokens of a page, at most: with its heading it is shown whole.
const OF_A_PAGE: usize = 3_900;

/// Texts in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    files: Vec<(String, usize)>,
    pages: Vec<Page>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    file: usize,
    number: usize,
    text: String,
    words: BTreeSet<String>,
}

impl Documents {
    /// Texts by the names that they are asked for by.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut documents = Self::default();
        for (name, text) in texts {
            let (file, pages) = (documents.files.len(), pages(&text));
            documents.files.push((name.clone(), pages.len()));
            documents.pages.extend(pages.into_iter().enumerate().map(|(at, text)| {
                let words = words(&text).chain(words(&name)).collect();
                Page { file, number: at + 1, text, words }
            }));
        }
        documents
    }

    /// The texts' names, those of most pages first.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut files: Vec<&(String, usize)> = self.files.iter().collect();
        files.sort_by_key(|(_, pages)| std::cmp::Reverse(*pages));
        files.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// How long a text is, in words.
    pub(crate) fn length(&self, name: &str) -> Option<String> {
        let (_, pages) = self.files.iter().find(|(file, _)| file == name)?;
        Some(if *pages == 1 { "a page".to_owned() } else { format!("{pages} pages") })
    }

    /// What is shown of these words: the page that they name (`FILE`, `FILE.7`), else the one that has most of them, rare ones
    /// before common ones.
    pub(crate) fn read(&self, asked: &str) -> String {
        let Some(page) = self.named(asked).or_else(|| self.nearest(asked)) else {
            return "None of these words stands there.".to_owned();
        };
        let (name, all) = &self.files[page.file];
        let next = (page.number < *all).then(|| format!("; `{name}.{}` goes on", page.number + 1));
        format!("{name}, page {} of {all}{}\n\n{}", page.number, next.unwrap_or_default(), page.text)
    }

    fn named(&self, asked: &str) -> Option<&Page> {
        let file = |name: &str| self.files.iter().position(|(file, _)| file == name);
        let (file, number) = match file(asked) {
            Some(file) => (file, 1),
            None => asked.rsplit_once('.').and_then(|(name, number)| Some((file(name)?, number.parse().ok()?)))?,
        };
        self.pages.iter().find(|page| (page.file, page.number) == (file, number))
    }

    fn nearest(&self, asked: &str) -> Option<&Page> {
        let asked: BTreeSet<String> = words(asked).collect();
        let having = |word: &String| self.pages.iter().filter(|page| page.words.contains(word)).count();
        let weight = |count: usize| (1.0 + self.pages.len() as f64 / count.max(1) as f64).ln();
        let weighed: Vec<(&String, f64)> = asked.iter().map(|word| (word, weight(having(word)))).collect();
        let score = |page: &Page| {
            weighed.iter().filter(|(word, _)| page.words.contains(*word)).map(|(_, weight)| weight).sum::<f64>()
        };
        // Of pages that have the same words, the first.
        let best = self.pages.iter().map(|page| (score(page), page)).filter(|(score, _)| *score > 0.0);
        best.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, page)| page)
    }
}

/// A text in pages, each cut at the end of a line; a line that is longer than a page is cut.
fn pages(text: &str) -> Vec<String> {
    let mut pages = vec![String::new()];
    for mut line in text.split_inclusive('\n') {
        while !line.is_empty() {
            let end = line.floor_char_boundary(3 * OF_A_PAGE);
            let (part, rest) = line.split_at(end);
            line = rest;
            if pages.last().is_some_and(|page| !page.is_empty() && tokens(page.len() + part.len()) > OF_A_PAGE) {
                pages.push(String::new());
            }
            if let Some(page) = pages.last_mut() {
                page.push_str(part);
            }
        }
    }
    pages
}

/// The words of a text, in lower case; names with `_` stay whole.
fn words(text: &str) -> impl Iterator<Item = String> {
    let all = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    all.filter(|word| word.len() > 1).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Documents {
        let line = |at: usize| format!("Line {at} of the manual, on this and that.\n");
        let mut manual: String = (0..900).map(line).collect();
        manual.push_str("wgmma.mma_async reads its descriptor from a register.\n");
        Documents::new([("manual.md".into(), manual), ("notes.md".into(), "Tensor maps are made on the host.".into())])
    }

    #[test]
    fn a_page_is_read_by_its_name_and_says_where_it_goes_on() {
        let documents = documents();
        let first = documents.read("manual.md");
        assert!(first.starts_with("manual.md, page 1 of 4; `manual.md.2` goes on\n\nLine 0 of"), "{}", &first[..80]);
        assert!(documents.read("manual.md.4").starts_with("manual.md, page 4 of 4\n\nLine "));
        assert_eq!(documents.read("manual.md"), documents.read("manual.md.1"));
        let pages = (1..=4).map(|at| documents.read(&format!("manual.md.{at}")));
        let text: String = pages.map(|page| page.split_once("\n\n").unwrap().1.to_owned()).collect();
        assert!(text.lines().count() == 901 && text.contains("Line 450 of"), "nothing is lost between pages");
        assert_eq!(
            (documents.names(), documents.length("manual.md")),
            (vec!["manual.md".into(), "notes.md".into()], Some("4 pages".into()))
        );
        assert_eq!(documents.length("notes.md").as_deref(), Some("a page"));
    }

    #[test]
    fn words_find_the_page_that_has_the_rarest_of_them() {
        let documents = documents();
        assert!(documents.read("the descriptor of wgmma on this line").starts_with("manual.md, page 4 of 4"));
        assert!(documents.read("tensor maps of the manual").starts_with("notes.md, page 1 of 1\n\nTensor"));
        assert_eq!(documents.read("cluster launch"), "None of these words stands there.");
        assert_eq!(documents.read("manual.md.9"), documents.read("md manual"), "no such page: by its words");
        assert_eq!(Documents::default().read("anything"), "None of these words stands there.");
    }

    #[test]
    fn a_line_that_is_longer_than_a_page_is_divided_and_every_page_can_be_shown() {
        let documents = Documents::new([("long.txt".into(), "é".repeat(9000))]);
        assert_eq!(documents.length("long.txt").as_deref(), Some("2 pages"));
        let shown: usize = (1..=2).map(|at| documents.read(&format!("long.txt.{at}")).matches('é').count()).sum();
        assert_eq!(shown, 9000);
        assert!((1..=2).all(|at| tokens(documents.read(&format!("long.txt.{at}")).len()) <= 4_000));
    }
}
