// Package pages reads the Markdown pages of the documentation: their links, anchors and code blocks.
// Tests run or check every code block of a page that [Documented] lists. The word after the three
// backticks is the language:
//
//   - sh: runs. All sh blocks of a page run in their order in one bash (set -euo pipefail). It runs as root
//     in an empty directory, with bin/ in PATH; sudo does nothing. A new server listens at http://127.0.0.1:8080.
//     The block `make run` starts that server.
//   - sh server: FLAGS: runs after the server was restarted with these flags of rockpool serve.
//   - text: the output of the sh block above it, in the same section. See [Missing].
//   - graphql: an operation that the schema allows. A query or mutation without variables is sent to the
//     server and must give no errors.
//   - yaml settings: a settings file that loads.
//   - yaml environment: rockpool env put -f accepts it.
//   - json, yaml, toml: parses.
//   - any other language: occurs, word for word, in a file of examples/ or test/.
//
// "skip: REASON" at the end of that line leaves the block out. A skipped sh block is still parsed, and a
// skipped graphql block is still validated. The command lines of rockpool and make, in all sh blocks and in
// code in the text, must name commands, flags and targets that exist.
package pages

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// A Page is a Markdown file.
type Page struct {
	Path    string // below the repository's root
	Blocks  []Block
	Code    []Located // code in the text
	Links   []Located // their targets, as written
	Anchors map[string]bool
}

// Located is a text and the line of the page where it begins.
type Located struct {
	Line int
	Text string
}

// A Block is a fenced or indented code block.
type Block struct {
	Located         // the first line of its content
	Language string // "" where none is named
	Kind     string // "settings" or "environment", for yaml
	Skip     string // why the block isn't run
	Server   string // flags with which the server is restarted first
	Unknown  string // other words after the language
	Section  int    // the number of headings above it
}

// MakesRun reports whether the block only starts the server of the clone.
func (b Block) MakesRun() bool {
	command, _, _ := strings.Cut(strings.TrimSpace(b.Text), "#")
	return b.Language == "sh" && strings.TrimSpace(command) == "make run"
}

// Documented returns the paths of the pages whose code blocks are tested.
func Documented(tree fs.FS) (paths []string, err error) {
	err = walk(tree, func(name string) error {
		if path.Ext(name) == ".md" && (strings.HasPrefix(name, "docs/") || name == "README.md" || name == "CONTRIBUTING.md" || name == "examples/README.md") {
			paths = append(paths, name)
		}
		return nil
	})
	return paths, err
}

// walk visits the files of the repository, without those that are built or installed.
func walk(tree fs.FS, visit func(name string) error) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return visit(name)
		case name == "bin", name == "data", name == "dist", name == "artifacts", name == "web/dist", name == "web/.out", name == "examples/.bin",
			path.Base(name) == ".git", path.Base(name) == "node_modules":
			return fs.SkipDir
		}
		return nil
	})
}

// Read reads a page of the repository.
func Read(tree fs.FS, name string) (Page, error) {
	source, err := fs.ReadFile(tree, name)
	return Parse(name, source), err
}

// Parse reads a page.
func Parse(name string, source []byte) Page {
	r := reader{source: source, page: Page{Path: name, Anchors: map[string]bool{}}}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			r.add(n)
		}
		return ast.WalkContinue, nil
	})
	return r.page
}

type reader struct {
	page     Page
	source   []byte
	sections int
}

func (r *reader) add(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		r.sections++
		r.addAnchor(anchor(r.textOf(n)))
	case *ast.FencedCodeBlock:
		info := ""
		if n.Info != nil {
			info = string(n.Info.Segment.Value(r.source))
		}
		r.addBlock(n, info)
	case *ast.CodeBlock:
		r.addBlock(n, "")
	case *ast.CodeSpan:
		r.page.Code = append(r.page.Code, r.located(n, r.textOf(n)))
	case *ast.Link:
		r.page.Links = append(r.page.Links, r.located(n, string(n.Destination)))
	case *ast.Image:
		r.page.Links = append(r.page.Links, r.located(n, string(n.Destination)))
	case *ast.AutoLink:
		if n.AutoLinkType == ast.AutoLinkURL {
			r.page.Links = append(r.page.Links, r.located(n, string(n.URL(r.source))))
		}
	case *ast.RawHTML:
		r.addHTML(n, string(n.Segments.Value(r.source)))
	case *ast.HTMLBlock:
		r.addHTML(n, string(n.Lines().Value(r.source)))
	}
}

var (
	named  = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
	linked = regexp.MustCompile(`\b(?:href|src|srcset)="([^"]+)"`)
)

func (r *reader) addHTML(n ast.Node, html string) {
	for _, m := range named.FindAllStringSubmatch(html, -1) {
		r.page.Anchors[m[1]] = true
	}
	for _, m := range linked.FindAllStringSubmatch(html, -1) {
		r.page.Links = append(r.page.Links, r.located(n, m[1]))
	}
}

func (r *reader) addBlock(n ast.Node, info string) {
	b := Block{Section: r.sections}
	b.Text = string(n.Lines().Value(r.source))
	if n.Lines().Len() > 0 {
		b.Line = r.line(n.Lines().At(0).Start)
	}
	info, reason, skipped := strings.Cut(info, "skip:")
	info, b.Server, _ = strings.Cut(info, "server:")
	b.Skip, b.Server = strings.TrimSpace(reason), strings.TrimSpace(b.Server)
	words := strings.Fields(info)
	if len(words) > 0 {
		b.Language, words = words[0], words[1:]
	}
	if len(words) > 0 && b.Language == "yaml" && (words[0] == "settings" || words[0] == "environment") {
		b.Kind, words = words[0], words[1:]
	}
	b.Unknown = strings.Join(words, " ")
	if skipped && b.Skip == "" {
		b.Unknown = "skip: without a reason"
	}
	r.page.Blocks = append(r.page.Blocks, b)
}

// addAnchor adds the anchor of a heading; one that exists gets a number.
func (r *reader) addAnchor(name string) {
	unique := name
	for n := 1; r.page.Anchors[unique]; n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	r.page.Anchors[unique] = true
}

// anchor returns what GitHub makes of a heading.
func anchor(heading string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-', unicode.In(c, unicode.L, unicode.M, unicode.Nd, unicode.Pc):
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
}

// textOf returns what a reader sees of a node.
func (r *reader) textOf(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(r.source))
				if n.SoftLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

func (r *reader) located(n ast.Node, text string) Located {
	for ; n != nil; n = n.Parent() {
		if at := n.Pos(); at >= 0 {
			return Located{r.line(at), text}
		}
	}
	return Located{1, text}
}

func (r *reader) line(at int) int { return 1 + strings.Count(string(r.source[:at]), "\n") }
