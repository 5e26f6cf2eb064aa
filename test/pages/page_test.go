package pages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReadsBlocksLinksAndAnchors(t *testing.T) {
	page := Parse("docs/x.md", []byte(strings.ReplaceAll("# Run `it`, now_2!\n\n"+
		"Use 'rockpool run' or [this](y.md#z), ![p](p.png), <https://example.org>, [that][r].\n\n"+
		"'''sh skip: needs systemd\na \\\n  b\n'''\n\n"+
		"## Same\n## Same\n\n- in a list\n\n  '''sh server: --token-file token --parallel 2\n  one\n    two\n  '''\n\n"+
		"'''yaml settings skip: later\na: 1\n'''\n'''sh skp: typo\n'''\n\n    indented\n\n<a id=\"old\"></a><img src=\"q.png\">\n\n[r]: r.md\n", "'''", "```")))
	want := []Block{
		{Located: Located{6, "a \\\n  b\n"}, Language: "sh", Skip: "needs systemd", Section: 1},
		{Located: Located{16, "one\n  two\n"}, Language: "sh", Server: "--token-file token --parallel 2", Section: 3},
		{Located: Located{21, "a: 1\n"}, Language: "yaml", Kind: "settings", Skip: "later", Section: 3},
		{Language: "sh", Unknown: "skp: typo", Section: 3},
		{Located: Located{26, "indented\n"}, Section: 3},
	}
	if diff := cmp.Diff(want, page.Blocks); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"run-it-now_2", "same", "same-1", "old"} {
		if !page.Anchors[name] {
			t.Errorf("no anchor %q in %v", name, page.Anchors)
		}
	}
	links := []Located{{3, "y.md#z"}, {3, "p.png"}, {3, "https://example.org"}, {3, "r.md"}, {28, "q.png"}}
	if diff := cmp.Diff(links, page.Links); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyMakeRunAloneStartsTheServer(t *testing.T) {
	for text, want := range map[string]bool{"make run\n": true, "make run   # serves\n": true, "make run DATA=x\n": false, "make run\nls\n": false} {
		if got := (Block{Located: Located{Text: text}, Language: "sh"}).MakesRun(); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestMissingFindsTheFirstLineThatIsNotPrinted(t *testing.T) {
	for _, test := range []struct{ shown, printed, missing string }{
		{"a\nb\n", "x\na\ny\nb\nz\n", ""},
		{"b\na\n", "a\nb\n", "a"},
		{"a\na\n", "a\n", "a"},
		{"a\n", "ab\n", "a"},
		{"ID … STATE\n…\nend", "ID    NAME STATE\nmore\nend\n", ""},
		{"1.5 s", "125 s", "1.5 s"},
		{"a…c", "abd", "a…c"},
		{"\n\n", "", ""},
		{"one two", "one     two", ""},
	} {
		if got := Missing(test.shown, test.printed); got != test.missing {
			t.Errorf("%q in %q: %q, want %q", test.shown, test.printed, got, test.missing)
		}
	}
}

func TestArgumentsFindsTheCommandsOfAScript(t *testing.T) {
	script := `
rockpool run hello.py arg   # rockpool nonesuch
id=$(rockpool runner claim python --timeout 1h)
seq 10 | bin/rockpool run --env shell --stdin -- sort -rn && echo rockpool no
ROCKPOOL_TOKEN=x sudo rockpool whoami >/dev/null 2>&1
rockpool exec list \
  --label "user=ada lovelace"; source <(rockpool completion bash)
cat > rockpool.txt <<'EOF'
rockpool in a heredoc

EOF
if ! rockpool queue; then rockpool top; fi
x="$(rockpool exec show "$y" | jq -r '.[] | "rockpool"')"
echo 'rockpool quoted'
`
	var got []string
	for _, arguments := range Arguments("rockpool", script) {
		got = append(got, fmt.Sprintf("%q", arguments))
	}
	want := []string{
		`["run" "hello.py" "arg"]`, `["runner" "claim" "python" "--timeout" "1h"]`, `["run" "--env" "shell" "--stdin" "--" "sort" "-rn"]`,
		`["whoami"]`, `["exec" "list" "--label" "user=ada lovelace"]`, `["completion" "bash"]`, `["queue"]`, `["top"]`, `["exec" "show" "$y"]`,
	}
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
