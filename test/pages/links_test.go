package pages

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/test/repository"
)

// sources are the files, besides pages, that name pages.
var sources = regexp.MustCompile(`(\.(go|sh|ts|tsx|js|mjs|yaml|yml|graphqls|service|socket|conf)|^Makefile|^scripts/[\w-]+)$`)

// mention is a page that such a file names: docs/x.md, with or without ../, but not as a part of a URL.
var mention = regexp.MustCompile(`(?:^|[^\w./-])(?:\.\.?/)*(docs/[\w./-]+\.md)(#[\w-]+)?`)

// decision is a page that is named by its number.
var decision = regexp.MustCompile(`(docs/decisions/\d{4})(?:[^\w-]|$)`)

// broken returns the links, anchors and mentions that lead nowhere, and the pages that no index links.
func broken(tree fs.FS) (all []string, err error) {
	pages, indexed := map[string]Page{}, map[string]bool{}
	err = walk(tree, func(name string) error {
		if path.Ext(name) != ".md" {
			return nil
		}
		pages[name], err = Read(tree, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	report := func(name string, line int, format string, args ...any) {
		all = append(all, fmt.Sprintf("%s:%d: ", name, line)+fmt.Sprintf(format, args...))
	}
	check := func(from string, line int, target, fragment string) {
		page, isPage := pages[target]
		if _, err := fs.Stat(tree, target); err != nil {
			report(from, line, "%s doesn't exist", target)
		} else if fragment != "" && isPage && !page.Anchors[fragment] {
			report(from, line, "%s has no heading #%s", target, fragment)
		}
	}
	for name, page := range pages {
		for _, link := range page.Links {
			to, err := url.Parse(link.Text)
			switch {
			case err != nil:
				report(name, link.Line, "%v", err)
			case to.Scheme != "":
				if to.Scheme != "mailto" && (to.Scheme != "http" && to.Scheme != "https" || to.Host == "") {
					report(name, link.Line, "%s is no URL of a page", link.Text)
				}
			default:
				target := name
				if to.Path != "" {
					target = path.Join(path.Dir(name), to.Path)
				}
				check(name, link.Line, target, to.Fragment)
				if path.Base(name) == "README.md" {
					indexed[target], indexed[path.Join(target, "README.md")] = true, true
				}
			}
		}
	}
	if _, has := pages["docs/README.md"]; has {
		for name := range pages {
			if strings.HasPrefix(name, "docs/") && name != "docs/README.md" && !indexed[name] {
				report(name, 1, "no README.md links this page")
			}
		}
	}
	err = walk(tree, func(name string) error {
		if !sources.MatchString(name) || strings.HasPrefix(name, "test/pages/") || strings.HasPrefix(name, "test/reference/") { // their examples don't exist
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		line := 0
		for content := range strings.Lines(string(text)) {
			line++
			for _, m := range mention.FindAllStringSubmatch(content, -1) {
				check(name, line, m[1], strings.TrimPrefix(m[2], "#"))
			}
			for _, m := range decision.FindAllStringSubmatch(content, -1) {
				if found, _ := fs.Glob(tree, m[1]+"-*.md"); len(found) == 0 {
					report(name, line, "%s doesn't exist", m[1])
				}
			}
		}
		return err
	})
	slices.Sort(all)
	return all, err
}

func TestLinksLeadSomewhere(t *testing.T) {
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := broken(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range all {
		t.Error(text)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := broken(fstest.MapFS{
		"README.md": file("# A b\n[fine](docs/a.md#one) [self](#a-b) [dir](docs) [out](https://example.org/x.md#y) <mailto:a@example.org>\n" +
			"[no](docs/none.md)\n[no](docs/a.md#two)\n[no](#c)\n[no](https:///x)\n![no](p.png)\n[no](ftp://example.org)\n"),
		"docs/README.md":           file("[a](a.md) [d](decisions/)"),
		"docs/a.md":                file("# One\n[up](../README.md#a-b)\n"),
		"docs/lonely.md":           file(""),
		"docs/decisions/README.md": file("[1](0001-x.md)"),
		"docs/decisions/0001-x.md": file(""),
		"main.go": file("// See docs/a.md#one and docs/decisions/0001.\n// See docs/b.md and \"../docs/" +
			"a.md#three\", https://example.org/docs/c.md.\n// docs/decisions/0002\n"),
		"scripts/run":                  file("docs/d.md\n"),
		"packaging/x.service":          file("Documentation=docs/e.md\n"),
		"x.bin":                        file("docs/f.md\n"),
		"web/node_modules/x/README.md": file("[no](none.md)"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README.md:3: docs/none.md doesn't exist", "README.md:4: docs/a.md has no heading #two", "README.md:5: README.md has no heading #c",
		"README.md:6: https:///x is no URL of a page", "README.md:7: p.png doesn't exist", "README.md:8: ftp://example.org is no URL of a page",
		"docs/lonely.md:1: no README.md links this page",
		"main.go:2: docs/a.md has no heading #three", "main.go:2: docs/b.md doesn't exist", "main.go:3: docs/decisions/0002 doesn't exist",
		"packaging/x.service:1: docs/e.md doesn't exist", "scripts/run:1: docs/d.md doesn't exist",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
