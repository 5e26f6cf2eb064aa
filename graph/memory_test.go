package graph

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// Operations are charged for the output that they read, not for maxBytes. A page is shorter if JSON
// makes it longer.
func TestOperationsAreChargedForTheirOutput(t *testing.T) {
	fake := clustertest.NewFake()
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{Peers: all}}})
	b.limitless("e")
	const bytes = 300_000
	id := b.start(in{"runnerId": b.claim("e"), "command": []string{"zeros", "300000"}})
	b.send(`query($id: ID!) { execution(id: $id, waitFor: 3600) { state output(maxBytes: 8388608) { end } } }`, in{"id": id}, &struct{}{})

	page := func(chunk string) (got struct {
		Execution struct {
			Output struct {
				Chunks []struct{ Stream, Text string }
				End    bool
			}
		}
	}) {
		b.send(`query($id: ID!) { execution(id: $id) { output(maxBytes: 8388608) { chunks { `+chunk+` } end } } }`, in{"id": id}, &got)
		wait.For(t, "the answer is written, and counts no more", func() bool { return all.Usage().BodyBytes == 0 })
		return got
	}
	if got := page("stream").Execution.Output; !got.End {
		t.Errorf("without its text there are %d chunks of %d bytes", len(got.Chunks), bytes)
	}
	text := page("stream text").Execution.Output
	if text.End || len(text.Chunks) == 0 || strings.Trim(text.Chunks[0].Text, "\x00") != "" {
		t.Errorf("with its text there are %d chunks, and the end is among them: %t", len(text.Chunks), text.End)
	}
	if code, _ := b.send(`{ runners(first: 1000) { nodes { id state environmentId } } }`, nil, nil); code != "QUOTA_EXCEEDED" {
		t.Errorf("4001 fields: got %v, want QUOTA_EXCEEDED", code)
	}
}

// Lines are charged like output. Lines that don't fit are on the next page.
func TestOperationsAreChargedForTheirLines(t *testing.T) {
	fake := clustertest.NewFake()
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{Peers: all}}})
	b.limitless("e")
	id := b.start(in{"runnerId": b.claim("e"), "command": []string{"count", "3000", "0"}})
	b.send(`query($id: ID!) { execution(id: $id, waitFor: 3600) { state } }`, in{"id": id}, &struct{}{})
	read := 0
	for from, pages := int64(1), 0; ; pages++ {
		var got struct {
			Execution struct {
				Lines struct {
					Lines []struct{ Number int64 }
					Next  *int64
				}
			}
		}
		b.send(`query($id: ID!, $from: Int64) { execution(id: $id) { lines(from: $from, maxLines: 1000) { lines { number text stream at open truncated lostBytes lostCause } next } } }`, in{"id": id, "from": from}, &got)
		wait.For(t, "the answer is written, and counts no more", func() bool { return all.Usage().BodyBytes == 0 })
		read += len(got.Execution.Lines.Lines)
		if got.Execution.Lines.Next == nil {
			if read != 3000 || pages < 5 {
				t.Errorf("%d lines in %d pages", read, pages+1)
			}
			return
		}
		from = *got.Execution.Lines.Next
	}
}

// A page of executions ends where there is no memory for more of them, and the next page continues
// there. Other answers fit meanwhile.
func TestOperationsAreChargedForTheirRecords(t *testing.T) {
	fake := clustertest.NewFake()
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{Peers: all}}})
	b.limitless("e")
	runner := b.claim("e")
	const started = 7
	id := ""
	for range started {
		id = b.start(in{"runnerId": runner, "command": []string{"true", strings.Repeat("x", 60_000)}})
	}
	type page struct {
		Executions struct {
			Nodes    []struct{ Command []string }
			PageInfo struct {
				HasNextPage bool
				EndCursor   string
			}
			TotalCount int
		}
	}
	list := `query($after: String) { executions(after: $after) { nodes { command } pageInfo { hasNextPage endCursor } totalCount } }`
	read, pages := 0, 0
	for after := any(nil); ; pages++ {
		var got page
		b.send(list, in{"after": after}, &got)
		wait.For(t, "the answer is written, and counts no more", func() bool { return all.Usage().BodyBytes == 0 })
		if read += len(got.Executions.Nodes); got.Executions.TotalCount != started {
			t.Errorf("the total is %d, not %d", got.Executions.TotalCount, started)
		}
		if !got.Executions.PageInfo.HasNextPage {
			break
		}
		after = got.Executions.PageInfo.EndCursor
	}
	if read != started || pages < 2 {
		t.Errorf("%d executions in %d pages, want %d in at least 3", read, pages+1, started)
	}
	b.start(in{"runnerId": runner, "command": []string{"true", strings.Repeat("x", 125_000), strings.Repeat("x", 125_000)}})
	if code, _ := b.send(`{ executions(newestFirst: true) { nodes { command } } }`, nil, nil); code != "QUOTA_EXCEEDED" {
		t.Errorf("an execution without memory for it: got %v, want QUOTA_EXCEEDED", code)
	}
	hold := all.Reserve(t.Context(), clients.Credential{})
	defer hold.Release()
	if err := hold.Grow(1 << 20); err != nil {
		t.Fatal(err)
	}
	if code, _ := b.send(`query($id: ID!) { execution(id: $id) { state output { chunks { text } end } lines { lines { text } } } }`, in{"id": id}, nil); code != nil {
		t.Errorf("a small answer at full memory: %v", code)
	}
}

// Aliases of a command are charged, each with its JSON, on a page and alone.
func TestOperationsAreChargedForTheirCommands(t *testing.T) {
	fake := clustertest.NewFake()
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{Peers: all}}})
	b.limitless("e")
	id := b.start(in{"runnerId": b.claim("e"), "command": []string{"true", strings.Repeat("\x01", 9_000)}})
	b.send(`query($id: ID!) { execution(id: $id, waitFor: 3600) { state } }`, in{"id": id}, &struct{}{})
	aliases := func(of string) (all string) {
		for i := range 10 {
			all += fmt.Sprintf("a%d: %s ", i, of)
		}
		return all
	}
	for query, want := range map[string]any{
		`query($id: ID!) { execution(id: $id) { command } }`:                                                nil,
		`query($id: ID!) { execution(id: $id) { ` + aliases("command") + ` } }`:                             "QUOTA_EXCEEDED",
		`query($id: ID!) { ` + aliases("execution(id: $id) { command }") + ` }`:                             "QUOTA_EXCEEDED",
		`query($id: ID!) { execution(id: $id) { id } executions { nodes { command } } }`:                    nil,
		`query($id: ID!) { execution(id: $id) { id } executions { ` + aliases("nodes { command }") + ` } }`: "QUOTA_EXCEEDED",
	} {
		if code, _ := b.send(query, in{"id": id}, nil); code != want {
			t.Errorf("%.100s: got %v, want %v", query, code, want)
		}
		wait.For(t, "the answer is written, and counts no more", func() bool { return all.Usage().BodyBytes == 0 })
	}
}

// The cost of a page includes aliases and their names.
func TestPagesCostTheirAliases(t *testing.T) {
	data := []byte("a\x01\n")
	const encoded = len(`"a\u0001\n"`)
	for selection, want := range map[string]int{
		"chunks { stream }":                    3 + chunkMemory + fieldMemory + 3*len("stream"),
		"chunks { t: text u: text }":           3 + chunkMemory + 2*(fieldMemory+3+3+3*encoded),
		"chunks { text } chunks { b: base64 }": 3 + chunkMemory + 2*fieldMemory + 3*len("textb") + 3 + 3*encoded + 4*4,
		"cursor":                               3 + chunkMemory,
	} {
		doc, errs := gqlparser.LoadQueryWithRules(schema(), `{ execution(id: 1) { output { `+selection+` } } }`, rules.NewDefaultRules())
		if errs != nil {
			t.Fatal(errs)
		}
		op := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0]}
		ctx := graphql.WithOperationContext(context.Background(), op)
		field := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Query"})[0]
		field = graphql.CollectFields(op, field.Selections, []string{"Execution"})[0]
		ctx = graphql.WithFieldContext(ctx, &graphql.FieldContext{Field: field})
		if got := costOfPage(ctx).of(data); got != int64(want) {
			t.Errorf("%s takes %d bytes, not %d", selection, got, want)
		}
	}
}
