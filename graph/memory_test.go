package graph

import (
	"context"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// Operations are charged for the output that they read, not for maxBytes. A page is shorter if JSON
// makes it longer.
func TestOperationsAreChargedForTheirOutput(t *testing.T) {
	fake := clustertest.NewFake()
	all := peers.New(peers.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{Options: Options{Settings: Settings{Peers: all}}})
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
		t.Errorf("4001 fields: %v", code)
	}
}

// Lines are charged like output. Lines that don't fit are on the next page.
func TestOperationsAreChargedForTheirLines(t *testing.T) {
	fake := clustertest.NewFake()
	all := peers.New(peers.Bounds{Bodies: 1 << 20})
	b := newBedWith(t, fake, fake, bedOptions{Options: Options{Settings: Settings{Peers: all}}})
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
