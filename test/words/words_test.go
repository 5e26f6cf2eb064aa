package words

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/repository"
)

// TestTheTree reads every text of the tree. `go test ./test/words` prints what to rewrite.
func TestTheTree(t *testing.T) {
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(directoriesLeftOut, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular() || isLeftOut(name):
			return nil
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		found, err := Check(name, source)
		for _, f := range found {
			t.Error(f)
		}
		files++
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if files < 1000 {
		t.Errorf("read %d files, but the tree has more", files)
	}
}

// Their files are built, fetched, generated, or data of tests.
var directoriesLeftOut = []string{".git", ".bin", ".out", "artifacts", "bin", "data", "dist", "generated", "node_modules", "testdata"}

// isLeftOut says whether a program wrote the file, or it lists banned phrases.
func isLeftOut(name string) bool {
	return strings.HasPrefix(name, "test/words/") || strings.HasSuffix(name, "/generated.go") ||
		slices.Contains([]string{"LICENSE", "graphql-env.d.ts", "schema.baseline.graphqls"}, path.Base(name))
}

func TestCheck(t *testing.T) {
	long := "This sentence has one word more than thirty, since it runs on and on and on and on and on and on and on and on and on and on and on."
	for _, c := range []struct {
		what, name, source string
		want               []string // beginnings, without the path
	}{
		{"a phrase of a comment", "a.go", "package a\n\n// F is told it.\nfunc F() {}\n", []string{"3: write is reported"}},
		{"over two lines", "a.go", "package a\n\n// F finds no\n// room here.\nfunc F() {}\n", []string{"3: write doesn't fit"}},
		{"of a message", "a.go", "package a\n\nconst m = \"it can't be had\"\n", []string{"3: write is unavailable"}},
		{"but not of a test's data", "a_test.go", "package a\n\nconst m = \"it can't be had\"\n", nil},
		{"a directive", "a.go", "package a\n\n//go:generate tells\nfunc F() {}\n", nil},
		{"the preamble of cgo", "a.go", "package a\n\n/*\nint at_once; // It tells all.\nint anew = 1; at once;\n*/\nimport \"C\"\n", nil},
		{"a comment before another import", "a.go", "package a\n\n// Told anew.\nimport \"b\"\n", []string{"3: write again"}},
		{"a long sentence", "a.md", long + "\n", []string{"1: sentence of 32", "1: line of 132"}},
		{"two short ones", "a.md", strings.Repeat("This sentence has only seven words here. ", 8) + "\n", []string{"1: line of"}},
		{"code counts as a word", "a.md", "Call `a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f`.\n", nil},
		{"code in a block", "a.md", "```sh\necho whoever\n```\n", nil},
		{"a comment in a block", "a.md", "```sh\nls # whoever\n```\n", []string{"2: write the caller"}},
		{"a cell of a table", "a.md", "| a | whoever |\n", []string{"1: write the caller"}},
		{"a relative clause", "a.md", "Fine. What has a name is kept.\n", []string{"1: begin with the subject"}},
		{"a question", "a.md", "What has a name?\n", nil},
		{"a description", "a.graphqls", "\"\"\"\nA field.\nWho asks gets it.\n\"\"\"\ntype A { b: Int }\n", []string{"2: begin with"}},
		{"a text of a page", "a.tsx", "<p>It is told</p>\n", []string{"1: write is reported"}},
		{"a comment of a script", "a.sh", "#!/bin/sh\n# It tells all.\n", []string{"2: write reports"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			found, err := Check(c.name, []byte(c.source))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != len(c.want) {
				t.Fatalf("found %q, want %q", found, c.want)
			}
			for i, f := range found {
				if got := strings.TrimPrefix(f.String(), c.name+":"); !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("found %q, want %q", got, c.want[i])
				}
			}
		})
	}
}

func TestFilesThatDoNotParseAreErrors(t *testing.T) {
	if _, err := Check("a.go", []byte("no Go")); err == nil {
		t.Error("no error")
	}
}
