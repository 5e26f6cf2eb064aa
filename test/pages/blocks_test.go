package pages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/rockpool/rockpool/test/repository"
)

// A checker checks what needs no server.
type checker struct {
	schema *ast.Schema
	quoted []string // files that blocks of other languages are quoted from
}

func newChecker(t *testing.T, tree fs.FS) (c checker) {
	t.Helper()
	text, err := fs.ReadFile(tree, "schema.graphqls")
	if err == nil {
		c.schema, err = gqlparser.LoadSchema(&ast.Source{Name: "schema.graphqls", Input: string(text)})
	}
	if err == nil {
		err = walk(tree, func(name string) error {
			if !strings.HasPrefix(name, "examples/") && !strings.HasPrefix(name, "test/") || strings.HasSuffix(name, ".md") {
				return nil
			}
			text, err := fs.ReadFile(tree, name)
			c.quoted = append(c.quoted, string(text))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check returns what is wrong with a block.
func (c checker) check(b Block) error {
	switch {
	case b.Language == "":
		return errors.New("the block names no language: use ```text for what is neither code nor output")
	case b.Unknown != "":
		return fmt.Errorf("%q after the language is unknown", b.Unknown)
	case b.Server != "" && b.Language != "sh":
		return errors.New("only sh blocks restart the server")
	case b.Language == "sh":
		return syntax(b.Text)
	case b.Language == "graphql":
		if _, errs := gqlparser.LoadQueryWithRules(c.schema, b.Text, rules.NewDefaultRules()); errs != nil {
			return errs
		}
		return nil
	case b.Skip != "", b.Language == "text", b.Language == "toml": // package test/e2e/pages parses TOML
		return nil
	case b.Language == "json":
		return documents(json.NewDecoder(strings.NewReader(b.Text)).Decode)
	case b.Language == "yaml":
		return documents(yaml.NewDecoder(strings.NewReader(b.Text)).Decode)
	case !slices.ContainsFunc(c.quoted, func(text string) bool { return strings.Contains(text, b.Text) }):
		return errors.New("no file of examples/ or test/ has this block: quote one, or write `skip: REASON` after the language")
	}
	return nil
}

// documents decodes every document of a block.
func documents(decode func(any) error) (err error) {
	for count := 0; ; count++ {
		var document any
		if err = decode(&document); errors.Is(err, io.EOF) && count > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// syntax has bash parse a script.
func syntax(script string) error {
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(script)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil || said.Len() > 0 { // it only warns of a heredoc without an end
		return fmt.Errorf("bash -n: %s", &said)
	}
	return nil
}

func TestBlocksAreWellFormed(t *testing.T) {
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	tree := os.DirFS(root)
	c := newChecker(t, tree)
	names, err := Documented(tree)
	if err != nil || len(names) < 10 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		page, err := Read(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Blocks {
			if err := c.check(b); err != nil {
				t.Errorf("%s:%d: %v\n%s", name, b.Line, err, b.Text)
			}
		}
	}
}

func TestMalformedBlocksAreFound(t *testing.T) {
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: "type Query { pool(id: ID!): String }"})
	c := checker{schema, []string{"import rockpool\nrun()\nend()\n"}}
	for _, test := range []struct {
		info, text string
		fine       bool
	}{
		{"sh", "if true; then echo; fi\n", true}, {"sh", "if true; echo\n", false}, {"sh skip: root", "echo 'x\n", false}, {"sh", "cat <<EOF\nx\n", false},
		{"sh skp: root", "echo\n", false}, {"sh skip:", "echo\n", false}, {"text server: --x", "", false}, {"", "x\n", false}, {"text", "x\n", true},
		{"graphql", "{ pool(id: 1) }\n", true}, {"graphql", "{ pool }\n", false}, {"graphql skip: no such pool", "{ pools }\n", false},
		{"json", "{\"a\": 1}\n{}\n", true}, {"json", "{a: 1}\n", false}, {"json", "", false}, {"json skip: a part", "…\n", true},
		{"yaml", "a: 1\n---\nb: 2\n", true}, {"yaml settings", "a: [1\n", false}, {"yaml other", "a: 1\n", false},
		{"python", "run()\n", true}, {"python", "run(1)\n", false}, {"hcl skip: of Nomad", "x {}\n", true},
	} {
		blocks := Parse("x.md", []byte("```"+test.info+"\n"+test.text+"```\n")).Blocks
		if err := c.check(blocks[0]); len(blocks) != 1 || (err == nil) != test.fine {
			t.Errorf("%s %q: %v", test.info, test.text, err)
		}
	}
}
