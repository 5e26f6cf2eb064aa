package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/pages"
)

func TestE2EPages(t *testing.T) {
	rockpool := bed.Rockpool(t)
	tree := os.DirFS(bed.Source(t, "."))
	names, err := pages.Documented(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		page, err := pages.Read(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		r := &run{page: page, rockpool: rockpool}
		if !r.needed() {
			continue
		}
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			t.Parallel()
			for _, problem := range r.all(t) {
				t.Error(problem)
			}
		})
	}
}

// A run runs the blocks of a page.
type run struct {
	page     pages.Page
	rockpool string
	data     string
	dir      string   // the working directory
	inside   []string // runs a command in the page's network
	personal []string // variables
	shell    *shell
	server   *bed.Process
}

// scriptOf returns what runs a block; "" if nothing does.
func scriptOf(b pages.Block) string {
	switch {
	case b.Skip != "":
		return ""
	case b.Language == "sh":
		return b.Text
	case b.Kind == "environment":
		return "rockpool env put -f - <<'END OF THE BLOCK'\n" + b.Text + "END OF THE BLOCK\n"
	case b.Language == "toml":
		return "python3 -c 'import sys, tomllib; tomllib.load(sys.stdin.buffer)' <<'END OF THE BLOCK'\n" + b.Text + "END OF THE BLOCK\n"
	case b.Language == "graphql" && isComplete(b.Text):
		body, _ := json.Marshal(map[string]string{"query": b.Text})
		return `curl -sS ${ROCKPOOL_TOKEN:+-H "Authorization: Bearer $ROCKPOOL_TOKEN"} -H 'Content-Type: application/json' -d @- http://127.0.0.1:8080/graphql` +
			" <<'END OF THE BLOCK'\n" + string(body) + "\nEND OF THE BLOCK\n"
	}
	return ""
}

// isComplete reports whether an operation can be sent as it is and has one answer.
func isComplete(query string) bool {
	document, err := parser.ParseQuery(&ast.Source{Input: query})
	return err == nil && len(document.Operations) == 1 && len(document.Operations[0].VariableDefinitions) == 0 && document.Operations[0].Operation != ast.Subscription
}

func (r *run) needed() bool {
	for _, b := range r.page.Blocks {
		if scriptOf(b) != "" {
			return true
		}
	}
	return false
}

// all runs the page and returns what is wrong. It ends at the first block that fails.
func (r *run) all(t *testing.T) (problems []string) {
	t.Helper()
	r.prepare(t)
	var printed string
	shown := -1 // the section of the block that printed this
	for _, b := range r.page.Blocks {
		problem := func(what any) {
			problems = append(problems, fmt.Sprintf("%s:%d: %v\n--- block\n%s--- printed\n%s", r.page.Path, b.Line, what, b.Text, printed))
		}
		script := scriptOf(b)
		switch {
		case script != "" && b.MakesRun():
			r.serve(t)
			printed, shown = r.server.Ready+r.server.Stderr.String(), b.Section
		case script != "":
			if b.Server != "" || r.server == nil {
				r.serve(t, strings.Fields(b.Server)...)
			}
			began := time.Now()
			var err error
			printed, err = r.shell.run(filepath.Base(r.page.Path), max(b.Line, 1), script)
			t.Logf("%s:%d: %s", r.page.Path, b.Line, time.Since(began).Round(time.Millisecond))
			if err == nil && b.Language == "graphql" {
				err = answered(printed)
			}
			if err != nil {
				problem(err)
				return problems
			}
			shown = b.Section
		case b.Language == "text" && b.Skip == "" && shown == b.Section:
			if line := pages.Missing(b.Text, printed); line != "" {
				problem(fmt.Sprintf("the block above doesn't print the line %q", line))
			}
		case b.Language == "sh" || b.Language == "graphql":
			shown = -1
		}
	}
	return problems
}

// answered returns why an answer of the API isn't one without errors.
func answered(text string) error {
	var answer struct{ Data, Errors json.RawMessage }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return err
	}
	if answer.Errors != nil || answer.Data == nil {
		return errors.New("the operation failed")
	}
	return nil
}

func (r *run) prepare(t *testing.T) {
	r.data, r.dir = bed.DataDir(t), t.TempDir()
	home := t.TempDir()
	r.inside = []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", networktest.NewHost(t).PID)}
	r.personal = []string{"HOME=" + home, "USER=root", "LANG=C.UTF-8", "TERM=dumb", "PATH=" + filepath.Dir(r.rockpool) + ":" + os.Getenv("PATH")}
	for _, of := range []string{"CONFIG", "CACHE", "STATE", "DATA"} {
		r.personal = append(r.personal, "XDG_"+of+"_HOME="+filepath.Join(home, strings.ToLower(of)))
	}
	for _, b := range r.page.Blocks {
		if b.MakesRun() { // in a clone
			if err := os.Symlink(filepath.Dir(r.rockpool), filepath.Join(r.dir, "bin")); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	t.Cleanup(func() { // after the server has ended
		if left := bed.Leftovers(r.data, bed.CgroupsOf(r.data)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	r.shell = startShell(t, r.dir, append(r.personal, "ROCKPOOL_CGROUP_PARENT="+bed.CgroupsOf(r.data)), r.inside...)
}

// serve starts the page's server, as make run does, or starts it again with flags.
func (r *run) serve(t *testing.T, flags ...string) {
	if r.server != nil {
		r.server.End(t, syscall.SIGTERM, false)
	}
	line := slices.Concat(r.inside, []string{"env", "-C", r.dir, "-u", "ROCKPOOL_LISTEN"}, r.personal,
		[]string{r.rockpool, "serve", "--data", r.data, "--on-stop", "remove"}, flags)
	r.server = bed.Serve(t, r.data, line[0], line[1:]...)
}

func TestE2EPagesCanFail(t *testing.T) {
	block := func(info, text string) string { return "```" + info + "\n" + text + "```\n" }
	page := block("sh", "make run\n") + block("text", "rockpool is ready: http://127.0.0.1:8080/graphql …\n") +
		block("sh", "head -c 32 /dev/urandom | base64 > token\nrockpool env list\n") + block("text", "ENVIRONMENT …\n…\nshell …\n") +
		block("text", "wrong1\n") + "# Section\n" + block("text", "a picture\n") +
		block("yaml environment", "id: shell2\npoolSize: 1\n") + block("graphql", "{ environment(id: \"shell2\") { poolSize } }\n") + block("text", "{\"data\":…}\n") +
		block("toml", "a = 1\n") + block("sh skip: no", "exit 1\n") + block("text", "not compared\n") +
		block("sh server: --token-file token", "! rockpool env list\nexport ROCKPOOL_TOKEN=$(cat token)\nrockpool env list | grep shell2\n") +
		block("graphql", "subscription { health { status } }\n") + block("graphql", "{ health { status } }\n")
	for _, test := range []struct{ name, last, want string }{
		{"command", block("sh", "false\n"), "exit code 1: false"}, {"exit", block("sh", "exit 0\n"), "the block failed"},
		{"operation", block("graphql", "mutation { deleteEnvironment(id: \"nonesuch\") }\n"), "the operation failed"},
		{"toml", block("toml", "a = b\n"), "the block failed"}, {"environment", block("yaml environment", "id: Wrong!\n"), "the block failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := &run{page: pages.Parse("x.md", []byte(page+test.last+block("sh", "never"))), rockpool: bed.Rockpool(t)}
			problems := r.all(t)
			if len(problems) != 2 || !strings.Contains(problems[0], "x.md:17: ") || !strings.Contains(problems[0], "wrong1") || !strings.Contains(problems[1], test.want) {
				t.Errorf("%q", problems)
			}
		})
	}
}
