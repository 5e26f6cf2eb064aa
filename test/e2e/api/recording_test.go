package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2ERecordings: a recording has each piece of output with the time when it was printed, in the
// format of asciinema's players.
func TestE2ERecordings(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	for name, test := range map[string]struct {
		input         object
		width, height int
		text          string
	}{
		"pipes":    {object{}, 120, 32, "one\r\ntwo \"\U0001f600\"\r\n\x1b[31mred\r\n"},
		"terminal": {object{"terminal": object{"columns": 50, "rows": 20}}, 50, 20, "one\r\ntwo \"\U0001f600\"\r\n\x1b[31mred\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			// Each piece is printed after the server has the previous one. Otherwise a busy agent may read
			// two pieces together.
			test.input["runnerId"] = runner
			test.input["shell"] = `rm -f go; next() { until [ "$(cat go)" = "$1" ]; do sleep 0.02; done 2>/dev/null; }
				echo one; next 1; printf 'two "\360\237'; sleep 0.1; printf '\230\200"\n'; next 2; printf '\033[31mred\n' >&2`
			p := sit(t, b, test.input)
			p.Sees(t, "STDOUT", "one")
			b.Shell(t, runner, "sleep 1; echo 1 >go")
			p.Sees(t, "STDOUT", "\"\U0001f600\"")
			b.Shell(t, runner, "echo 2 >go")
			x := b.Await(t, p.ID)
			var out struct{ Execution struct{ OutputURL string } }
			b.Call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": x.Id}, &out)
			lines := bufio.NewScanner(bytes.NewReader(downloadFile(t, b, out.Execution.OutputURL+"&format=asciicast")))
			lines.Scan()
			var header struct {
				Version, Width, Height int
				Command                string
			}
			if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header.Version != 2 || header.Width != test.width || header.Height != test.height || !strings.Contains(header.Command, "echo one") {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			var text string
			var last float64
			var pause bool
			for lines.Scan() {
				var event []any
				if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 || event[1] != "o" {
					t.Fatalf("%s: %v", lines.Text(), err)
				}
				at := event[0].(float64)
				pause = pause || at-last > 0.5
				if at < last {
					t.Errorf("%f comes after %f", at, last)
				}
				last = at
				text += event[2].(string)
			}
			if text != test.text || !pause {
				t.Errorf("%q, the pause was seen: %t", text, pause)
			}
			refused, body, err := b.Get(t, http.MethodGet, out.Execution.OutputURL+"&format=gif")
			if err != nil || refused.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte("INVALID_INPUT")) {
				t.Errorf("an unknown format: %s %s, %v", refused.Status, body, err)
			}
		})
	}
}

// TestE2ERecordingsHaveTheTerminalsSizes: a recording has the terminal's size before the output
// that was printed at it. Subscribers get the sizes if they request them.
func TestE2ERecordingsHaveTheTerminalsSizes(t *testing.T) {
	b := bed.Open(t)
	p := sit(t, b, object{
		"runnerId": b.Claim(t, "shell"), "terminal": object{"columns": 50, "rows": 20},
		"shell": `trap 'stty size' WINCH; stty size; echo ready; while ! read -r line; do :; done; printf over`,
	})
	p.Sees(t, "STDOUT", "20 50\r\nready\r\n")
	p.Call(t, resizeMutation, object{"in": object{"executionId": p.ID, "columns": 100, "rows": 30}}, nil)
	p.Sees(t, "STDOUT", "30 100\r\n")
	p.Types(t, "x\n")
	p.Sees(t, "STDOUT", "over")

	var told []string
	for _, wanted := range []bool{true, false} {
		stream := eventStream(t, b, `subscription($id: ID!, $wanted: Boolean) { executionEvents(executionId: $id, resizes: $wanted) { __typename cursor ... on ExecutionResized { columns rows at } ... on ExecutionOutput { text } } }`,
			object{"id": p.ID, "wanted": wanted})
		if strings.Contains(stream, "ExecutionResized") != wanted {
			t.Errorf("wanted %t: %s", wanted, stream)
		}
		told = append(told, stream)
	}
	first, second, printed := strings.Index(told[0], `"columns":50,"rows":20`), strings.Index(told[0], `"columns":100,"rows":30`), strings.Index(told[0], `30 100`)
	if first < 0 || second < first || printed < second {
		t.Errorf("%s", told[0])
	}

	var out struct{ Execution struct{ OutputURL string } }
	b.Call(t, `query($id: ID!) { execution(id: $id) { outputUrl } }`, object{"id": p.ID}, &out)
	lines := strings.Split(string(downloadFile(t, b, out.Execution.OutputURL+"&format=asciicast")), "\n")
	if !strings.HasPrefix(lines[0], `{"version":2,"width":50,"height":20,`) {
		t.Error(lines[0])
	}
	resized := false
	for _, line := range lines[1:] {
		resized = resized || strings.HasSuffix(line, `"r","100x30"]`)
		if strings.Contains(line, `"r",`) != strings.HasSuffix(line, `"r","100x30"]`) || strings.Contains(line, "30 100") && !resized {
			t.Errorf("%s in %q", line, lines)
		}
	}
	if !resized {
		t.Errorf("%q", lines)
	}
	if text := string(downloadFile(t, b, out.Execution.OutputURL)); !strings.HasPrefix(text, "20 50\r\nready\r\n") || !strings.HasSuffix(text, "over") {
		t.Errorf("%q", text)
	}
}
