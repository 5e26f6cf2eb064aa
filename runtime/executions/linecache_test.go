package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// A piece is one write of a program to a stream; without data, it is lost bytes.
type piece struct {
	stream runtime.Stream
	data   string
}

// write makes a log of pieces, each of which cut may divide into records.
func write(t testing.TB, pieces []piece, cut func(data string) int) (lineSource, *output.Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l := output.New(output.File(path))
	add(t, l, pieces, cut)
	source := lineSource{ID: "x", Open: func(position int64) (*output.Reader, error) { return l.Reader(position) }}
	return source, l
}

func add(t testing.TB, l *output.Log, pieces []piece, cut func(data string) int) {
	t.Helper()
	for _, p := range pieces {
		if p.stream == 0 {
			l.Skip(l.Next() + int64(len(p.data)))
			continue
		}
		for data := p.data; data != ""; {
			n := min(cut(data), len(data), output.MaxData)
			if err := l.Add(output.Record{Stream: p.stream, Offset: l.Next(), Since: time.Duration(l.Next()) * time.Microsecond, Data: []byte(data[:n])}); err != nil {
				t.Fatal(err)
			}
			data = data[n:]
			if l.Pending() > output.FlushBytes {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
}

// end ends an execution that printed some lost bytes after its log's end.
func end(t testing.TB, source *lineSource, l *output.Log, lost int64) {
	t.Helper()
	source.Ended, source.Bytes, source.After = true, l.Next()+lost, time.Duration(l.Next()+lost)*time.Microsecond
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
}

func wholes(data string) int { return len(data) }

// numbered defines lines, byte by byte.
func numbered(pieces []piece, ended bool) []Line {
	var all []Line
	open := [3]int{-1, -1, -1}
	since := [3]int{} // bytes of the other stream since a line began
	offset := int64(0)
	finish := func(stream runtime.Stream) {
		if at := open[stream]; at >= 0 {
			all[at].Open = false
			open[stream] = -1
		}
	}
	for _, p := range pieces {
		if p.stream == 0 {
			finish(1)
			finish(2)
			all = append(all, Line{Number: int64(len(all) + 1), Lost: int64(len(p.data)), Offset: offset})
			offset += int64(len(p.data))
			continue
		}
		other := 3 - p.stream
		for i := range len(p.data) {
			if since[p.stream] > interruption {
				finish(p.stream)
			}
			if open[p.stream] < 0 {
				all = append(all, Line{Number: int64(len(all) + 1), Stream: p.stream, Open: true, Offset: offset})
				open[p.stream], since[p.stream] = len(all)-1, 0
			}
			line := &all[open[p.stream]]
			if p.data[i] == '\n' {
				line.Data = bytes.TrimSuffix(line.Data, []byte("\r"))
				finish(p.stream)
			} else {
				line.Data = append(line.Data, p.data[i])
			}
			offset++
			since[other]++
		}
	}
	for i := range all {
		all[i].Open = all[i].Open && !ended && since[all[i].Stream] <= interruption
	}
	return all
}

// shown returns lines in the form of pages.
func shown(lines []Line) []Line {
	for i := range lines {
		if lines[i].Truncated = len(lines[i].Data) > maxLineText; lines[i].Truncated {
			data := lines[i].Data
			if overwritten(data) {
				lines[i].Data = lastState(data)
				continue
			}
			data = data[:maxLineText]
			lines[i].Data, lines[i].Open = data[:len(data)-runtime.Unfinished(data)], false
		}
	}
	return lines
}

func show(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%d %d %.60q %d open=%v cut=%v lost=%d\n", l.Number, l.Stream, l.Data, len(l.Data), l.Open, l.Truncated, l.Lost)
	}
	return b.String()
}

func texts(lines []Line) string {
	var out []string
	for _, l := range lines {
		switch {
		case l.Lost > 0:
			out = append(out, fmt.Sprintf("%d lost %d", l.Number, l.Lost))
		case l.Open:
			out = append(out, fmt.Sprintf("%d%s %s…", l.Number, letter(l.Stream), l.Data))
		default:
			out = append(out, fmt.Sprintf("%d%s %s", l.Number, letter(l.Stream), l.Data))
		}
	}
	return strings.Join(out, "|")
}

// all reads all pages of a query.
func all(t interface {
	Fatal(...any)
	Helper()
}, b *lineCache, source lineSource, q lineQuery) []Line {
	t.Helper()
	var got []Line
	for {
		page, err := b.Read(context.Background(), source, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Lines) > q.First {
			t.Fatal("a page has", len(page.Lines))
		}
		got = append(got, page.Lines...)
		if !page.More {
			if (page.Next == 0) != source.Ended {
				t.Fatal("at the end the next is", page.Next)
			}
			return got
		}
		if page.Next <= q.From {
			t.Fatal("no way on from", q.From)
		}
		q.From, q.Skip = page.Next, 0
	}
}

var parts = rapid.SampledFrom([]string{"a", "B", "error", "\n", "\r\n", "\r", "\n\n", "\xff", "é", "\xe2\x82", "\x1b[31m", strings.Repeat("x", maxLineText-1), strings.Repeat("y", 30<<10), strings.Repeat("z\n", 50)})

var pieces = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) piece {
	return piece{runtime.Stream(rapid.SampledFrom([]int{1, 1, 1, 2, 2, 0}).Draw(t, "stream")), strings.Join(rapid.SliceOfN(parts, 1, 4).Draw(t, "parts"), "")}
}), 0, 40)

// TestPagesCoverAllLines checks that pages have the defined lines however a log is divided into
// records, and wherever pages begin and end. The same holds for lines of one stream and for
// searches.
func TestPagesCoverAllLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		printed := pieces.Draw(rt, "pieces")
		cut := rapid.SampledFrom([]int{1, 7, 100, 4096, output.MaxData}).Draw(rt, "cut")
		ended := rapid.Bool().Draw(rt, "ended")
		for n := len(printed); n > 0 && printed[n-1].stream == 0 && !ended; n-- {
			printed = printed[:n-1] // whether the line is complete isn't known yet
		}
		for i := 1; i < len(printed); i++ { // two losses that meet are one
			if printed[i].stream == 0 && printed[i-1].stream == 0 {
				printed[i].data = printed[i-1].data + printed[i].data
				printed[i-1] = piece{1, ""}
				printed = slices.Delete(printed, i-1, i)
				i--
			}
		}
		cuts := func(data string) int {
			if cut < 100 && len(data) > 5000 {
				return 999
			}
			return cut
		}
		source, l := write(t, printed, cuts)
		if ended {
			end(t, &source, l, 0)
		}
		want := numbered(printed, ended)
		found := slices.DeleteFunc(slices.Clone(want), func(line Line) bool {
			return line.Lost > 0 || !bytes.Contains(bytes.ToLower(line.Data), []byte("b"))
		})
		found, want = shown(found), shown(want)
		b := newLineCache()
		first := rapid.SampledFrom([]int{1, 2, 3, 10, maxLines}).Draw(rt, "first")
		compare := func(name string, got, want []Line) {
			rt.Helper()
			if show(got) != show(want) {
				i := 0
				for i < min(len(got), len(want)) && show(got[i:i+1]) == show(want[i:i+1]) {
					i++
				}
				rt.Fatalf("%s: %d lines, want %d; from the first that differs on:\n%s\nwant\n%s", name, len(got), len(want), show(got[i:min(i+2, len(got))]), show(want[i:min(i+2, len(want))]))
			}
		}
		compare("all", distinct(all(rt, b, source, lineQuery{From: 1, First: first})), want)
		for stream := runtime.Stdout; stream <= runtime.Stderr; stream++ {
			var of []Line
			for _, line := range want {
				if line.Lost > 0 || line.Stream == stream {
					of = append(of, line)
				}
			}
			compare("one stream", distinct(all(rt, b, source, lineQuery{From: 1, First: first, Stream: stream})), of)
			if len(of) > 0 {
				skip := rapid.IntRange(0, len(of)).Draw(rt, "skip")
				page, err := b.Read(t.Context(), source, lineQuery{From: 1, Skip: int64(skip), First: 1, Stream: stream})
				if err != nil || page.Total != int64(len(of)) || page.Before != int64(skip) {
					rt.Fatalf("total %d, before %d, %v; want %d and %d", page.Total, page.Before, err, len(of), skip)
				}
				compare("after some", page.Lines, of[skip:min(skip+1, len(of))])
				page, err = b.Read(t.Context(), source, lineQuery{First: 5, Last: true, Stream: stream})
				if err != nil || page.Before != int64(max(0, len(of)-5)) {
					rt.Fatal(page.Before, err)
				}
				compare("the last", page.Lines, of[max(0, len(of)-5):])
			}
		}
		compare("search", distinct(all(rt, b, source, lineQuery{From: 1, First: first, Containing: "B"})), found)
		from := rapid.IntRange(1, len(want)+2).Draw(rt, "from")
		page, err := b.Read(t.Context(), source, lineQuery{From: int64(from), First: maxLines})
		if err != nil || page.Before != int64(min(from-1, len(want))) || page.Total != int64(len(want)) || !page.Counted {
			rt.Fatal(page.Before, page.Total, err)
		}
		if len(page.Lines) > 0 {
			compare("from the middle", page.Lines, want[from-1:from-1+len(page.Lines)])
		} else if from <= len(want) {
			rt.Fatal("nothing from", from)
		}
	})
}

// distinct drops open lines that were returned again.
func distinct(lines []Line) []Line {
	slices.SortStableFunc(lines, func(a, b Line) int { return int(a.Number - b.Number) })
	return slices.CompactFunc(lines, func(a, b Line) bool { return a.Number == b.Number && a.Open })
}

func TestDefinitionOfLines(t *testing.T) {
	long := strings.Repeat("x", interruption)
	for name, test := range map[string]struct {
		pieces []piece
		want   string
	}{
		"no output":                              {nil, ""},
		"no newline at the end":                  {[]piece{{1, "a\nb"}}, "1o a|2o b"},
		"empty lines":                            {[]piece{{1, "\n\n"}, {2, "\n"}}, "1o |2o |3e "},
		"streams in turn":                        {[]piece{{1, "on"}, {2, "err\n"}, {1, "e\ntwo\n"}}, "1o one|2e err|3o two"},
		"carriage returns":                       {[]piece{{1, "1%\r2%\rdone\r\nnext\r"}, {1, "\n"}}, "1o 1%\r2%\rdone|2o next"},
		"output of a terminal":                   {[]piece{{1, "$ ls\r\n\x1b[34mdir\x1b[0m\r\n$ "}}, "1o $ ls|2o \x1b[34mdir\x1b[0m|3o $ "},
		"no UTF-8":                               {[]piece{{1, "\xff\xfe\n\xe2"}, {1, "\x82\xac\n"}}, "1o \xff\xfe|2o €"},
		"lost bytes":                             {[]piece{{1, "be"}, {2, "er"}, {0, "12345"}, {1, "fore\n"}}, "1o be|2e er|3 lost 5|4o fore"},
		"lost at the end":                        {[]piece{{1, "a\n"}, {0, "123"}}, "1o a|2 lost 3"},
		"interruption at the limit: one line":    {[]piece{{1, "> "}, {2, long}, {1, "x\n"}}, "1o > x|2e " + long[:maxLineText]},
		"interruption over the limit: two lines": {[]piece{{1, "> "}, {2, long + "x"}, {1, "x\n"}}, "1o > |2e " + long[:maxLineText] + "|3o x"},
		"a carriage return in a cut":             {[]piece{{1, long[:maxLineText] + "\r\n"}, {1, long[:maxLineText] + "\ry\n"}}, "1o " + long[:maxLineText] + "|2o " + long[:maxLineText]},
	} {
		source, l := write(t, test.pieces, wholes)
		end(t, &source, l, 0)
		page, err := newLineCache().Read(t.Context(), source, lineQuery{From: 1, First: 100})
		if got := texts(page.Lines); err != nil || got != test.want || page.Next != 0 {
			t.Errorf("%s: %.300q, %v, next %d", name, got, err, page.Next)
		}
	}
}

func TestCutLinesEndWithAWholeCharacter(t *testing.T) {
	source, l := write(t, []piece{{1, strings.Repeat("x", maxLineText-1) + "€€\n"}, {1, strings.Repeat("y", maxLineText) + "\n"}}, wholes)
	end(t, &source, l, 0)
	page, err := newLineCache().Read(t.Context(), source, lineQuery{From: 1, First: 100})
	if err != nil || len(page.Lines) != 2 || len(page.Lines[0].Data) != maxLineText-1 || !page.Lines[0].Truncated || page.Lines[1].Truncated {
		t.Fatal(show(page.Lines), err)
	}
}

// TestLineNumbersAreStable checks that lines keep their numbers while more is printed, after the
// end, and in a new lineCache.
func TestLineNumbersAreStable(t *testing.T) {
	source, l := write(t, []piece{{1, "one\ntw"}, {2, "err"}}, wholes)
	b := newLineCache()
	read := func(b *lineCache, want string, next int64) {
		t.Helper()
		page, err := b.Read(t.Context(), source, lineQuery{From: 1, First: 100})
		if err != nil || texts(page.Lines) != want || page.Next != next {
			t.Errorf("%s, next %d, %v; want %s, %d", texts(page.Lines), page.Next, err, want, next)
		}
	}
	read(b, "1o one|2o tw…|3e err…", 2)
	add(t, l, []piece{{1, "o\n"}}, wholes)
	read(b, "1o one|2o two|3e err…", 3)
	add(t, l, []piece{{2, "or\n"}}, wholes)
	read(b, "1o one|2o two|3e error", 4)
	add(t, l, []piece{{0, "lost"}, {1, "four"}}, wholes)
	read(b, "1o one|2o two|3e error|4 lost 4|5o four…", 5)
	end(t, &source, l, 10)
	read(b, "1o one|2o two|3e error|4 lost 4|5o four|6 lost 10", 0)
	read(newLineCache(), "1o one|2o two|3e error|4 lost 4|5o four|6 lost 10", 0)
}

func TestTruncatedLogIsCountedAgain(t *testing.T) {
	source, l := write(t, []piece{{1, "one\n"}, {1, "two\n"}}, wholes)
	size := l.Size()
	end(t, &source, l, 0)
	var path output.File
	source.Open = func(position int64) (*output.Reader, error) { return output.OpenReader(path, position) }
	dir := t.TempDir()
	path = output.File(filepath.Join(dir, "log"))
	whole := output.New(path)
	add(t, whole, []piece{{1, "one\n"}, {1, "two\n"}}, wholes)
	if err := whole.End(); err != nil {
		t.Fatal(err)
	}
	b := newLineCache()
	for _, cut := range []int64{size, size / 2, 0} {
		if err := os.Truncate(string(path), cut); err != nil {
			t.Fatal(err)
		}
		page, err := b.Read(t.Context(), source, lineQuery{From: 1, First: 10})
		want := map[int64]string{size: "1o one|2o two", size / 2: "1o one|2 lost 4", 0: "1 lost 8"}[cut]
		if err != nil || texts(page.Lines) != want || page.Total != int64(len(page.Lines)) {
			t.Errorf("%d bytes: %s of %d, %v", cut, texts(page.Lines), page.Total, err)
		}
	}
}

func TestSearch(t *testing.T) {
	far := strings.Repeat("x", 3*maxLineText)
	source, l := write(t, []piece{{1, "An Error\n"}, {2, "\x1b[1mer\x1b[31mror\x1b[0m\n"}, {1, "\x1b]0;title\x07plain\n"}, {1, far + "needle\n"}, {1, "ÄPFEL\nnee"}, {2, "no\n"}, {1, "dle\n"}}, func(string) int { return 3 })
	end(t, &source, l, 0)
	for _, test := range []struct {
		q    lineQuery
		want []int64
	}{
		{lineQuery{Containing: "error"}, []int64{1, 2}},
		{lineQuery{Containing: "error", MatchCase: true}, []int64{2}},
		{lineQuery{Containing: "Error", MatchCase: true}, []int64{1}},
		{lineQuery{Containing: "ERROR", Stream: runtime.Stdout}, []int64{1}},
		{lineQuery{Containing: "title"}, nil},
		{lineQuery{Containing: "needle"}, []int64{4, 6}},
		{lineQuery{Containing: "äpfel"}, []int64{5}},
		{lineQuery{Containing: "äpfel", MatchCase: true}, nil},
		{lineQuery{Containing: "error", From: 2}, []int64{2}},
	} {
		test.q.First, test.q.From = 10, max(test.q.From, 1)
		page, err := newLineCache().Read(t.Context(), source, test.q)
		var got []int64
		for _, line := range page.Lines {
			got = append(got, line.Number)
		}
		if err != nil || !slices.Equal(got, test.want) || page.Next != 0 {
			t.Errorf("%+v: %v, %v", test.q, got, err)
		}
	}
}

// TestSearchesAreBounded checks that a search through more than workBytes returns early, and
// continues in the next call.
func TestSearchesAreBounded(t *testing.T) {
	line := strings.Repeat("x", 9999) + "\n"
	var printed []piece
	for range (workBytes + workBytes/2) / len(line) {
		printed = append(printed, piece{1, line})
	}
	printed = append(printed, piece{1, "needle"})
	source, l := write(t, printed, wholes)
	end(t, &source, l, 0)
	b := newLineCache()
	page, err := b.Read(t.Context(), source, lineQuery{From: 1, First: 10, Containing: "needle"})
	if err != nil || len(page.Lines) != 0 || page.Next < 3000 || page.Next > 3400 {
		t.Fatal(page, err)
	}
	page, err = b.Read(t.Context(), source, lineQuery{From: page.Next, First: 10, Containing: "needle"})
	if err != nil || len(page.Lines) != 1 || page.Next != 0 {
		t.Fatal(page, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := newLineCache().Read(ctx, source, lineQuery{From: 1, First: 10}); !errors.Is(err, gone) {
		t.Errorf("counts on after its caller left: got %v, want %v", err, gone)
	}
	page, err = b.Read(t.Context(), source, lineQuery{From: 1, First: maxLines})
	if err != nil || len(page.Lines) != pageText/9999+1 || page.Next != int64(len(page.Lines)+1) {
		t.Error("a page has", len(page.Lines), page.Next, err)
	}
}

// TestCallsAreBoundedByLines uses a log of newlines, which cost most.
func TestCallsAreBoundedByLines(t *testing.T) {
	const lines = workLines + workLines/2
	printed := []piece{{1, strings.Repeat("\n", lines)}, {1, "needle\n"}}
	source, l := write(t, printed, wholes)
	end(t, &source, l, 0)
	b := newLineCache()
	page, err := b.Read(t.Context(), source, lineQuery{From: 1, First: 1})
	if err != nil || page.Counted || page.Total < workLines || page.Total > workLines+output.MaxData {
		t.Fatal(page.Counted, page.Total, err)
	}
	page, err = b.Read(t.Context(), source, lineQuery{From: 1, First: 1, Containing: "needle"})
	if err != nil || !page.Counted || page.Total != lines+1 || !page.More || page.Next < workLines || page.Next > workLines+output.MaxData+1 {
		t.Fatal(page.Counted, page.Total, page.Next, err)
	}
	page, err = b.Read(t.Context(), source, lineQuery{From: page.Next, First: 1, Containing: "needle"})
	if err != nil || len(page.Lines) != 1 || page.Lines[0].Number != lines+1 {
		t.Fatal(page, err)
	}
}

func TestIndexesAreBounded(t *testing.T) {
	x := newIndex()
	for range 10 * maxPositions {
		x.tail.position += firstSpacing
		x.tail.begun[0]++
		x.keep()
	}
	if len(x.positions) > maxPositions || x.spacing < 8*firstSpacing {
		t.Error(len(x.positions), x.spacing)
	}
	if at := x.before(0, 5000); at.begun[0] > 5000 || at.begun[0] < 4900 {
		t.Error(at)
	}
	b := newLineCache()
	quiet := b.entry(lineSource{ID: "quiet", Tenant: "quiet"})
	for n := range 2 * maxIndexes {
		b.entry(lineSource{ID: runtime.ExecutionID(fmt.Sprint(n)), Tenant: "loud"})
	}
	if len(b.kept) != 1+maxTenantIndexes || b.latest.Len() != len(b.kept) || b.entry(lineSource{ID: "quiet", Tenant: "quiet"}) != quiet {
		t.Error("one tenant's:", len(b.kept))
	}
	for n := range 2 * maxIndexes {
		b.entry(lineSource{ID: runtime.ExecutionID(fmt.Sprint(n)), Tenant: runtime.TenantID(fmt.Sprint(n))})
	}
	if len(b.kept) != maxIndexes || b.latest.Len() != maxIndexes {
		t.Error("all tenants':", len(b.kept))
	}
}

// FuzzChunks checks that the division of a log into records makes no difference.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("one\ntwo\x01err\r\n\x00three"), uint8(3))
	f.Add([]byte("\x01\r\x00\r\n\n\x01\n"), uint8(1))
	f.Fuzz(func(t *testing.T, printed []byte, size uint8) {
		var cut []piece // \x00 and \x01 change the stream, \x02 loses a byte
		stream := runtime.Stdout
		for _, c := range printed {
			switch c {
			case 0, 1:
				stream = runtime.Stream(c + 1)
			case 2:
				if n := len(cut); n > 0 && cut[n-1].stream == 0 {
					cut[n-1].data += "?"
				} else {
					cut = append(cut, piece{0, "?"})
				}
			default:
				if n := len(cut); n > 0 && cut[n-1].stream == stream {
					cut[n-1].data += string(c)
				} else {
					cut = append(cut, piece{stream, string(c)})
				}
			}
		}
		source, l := write(t, cut, func(string) int { return int(size) + 1 })
		end(t, &source, l, 0)
		if got, want := show(all(t, newLineCache(), source, lineQuery{From: 1, First: 3})), show(shown(numbered(cut, true))); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	})
}

// big returns 50 MB in a million lines.
func big(b *testing.B, record int) lineSource {
	var all strings.Builder
	for n := range 1_000_000 {
		fmt.Fprintf(&all, "%08d the quick brown fox jumps over a dog, 1\n", n+1)
	}
	source, l := write(b, []piece{{1, all.String()}}, func(string) int { return record })
	end(b, &source, l, 0)
	return source
}

func BenchmarkLines(b *testing.B) {
	for _, record := range []int{50, output.MaxData} {
		source := big(b, record)
		warm := newLineCache()
		if _, err := warm.Read(b.Context(), source, lineQuery{From: 1, First: 1}); err != nil {
			b.Fatal(err)
		}
		for name, run := range map[string]func() (*lineCache, lineQuery){
			"first": func() (*lineCache, lineQuery) { return newLineCache(), lineQuery{From: 500_000, First: 200} },
			"page":  func() (*lineCache, lineQuery) { return warm, lineQuery{From: 500_000, First: 200} },
			"search": func() (*lineCache, lineQuery) {
				return warm, lineQuery{From: 1, First: 1, Containing: "00500000 THE"}
			},
			"whole": func() (*lineCache, lineQuery) { return warm, lineQuery{From: 1, First: 1, Containing: "nothing of it"} },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, record), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					lines, q := run()
					for {
						page, err := lines.Read(b.Context(), source, q)
						if err != nil {
							b.Fatal(err)
						}
						if page.Next == 0 || len(page.Lines) > 0 {
							break
						}
						q.From = page.Next
					}
				}
			})
		}
	}
}

func letter(s runtime.Stream) string { return strings.ToLower(s.String()[3:4]) }

// TestOverwrittenLinesShowTheirEnd: of a progress bar, which is one line with carriage returns, people
// want its last state. Most of a long one isn't even read.
func TestOverwrittenLinesShowTheirEnd(t *testing.T) {
	var bar strings.Builder
	for n := range 60_000 {
		fmt.Fprintf(&bar, "\rdone %6d of 60000", n+1)
	}
	source, l := write(t, []piece{{1, "begin\n"}, {1, bar.String()}, {2, "beside"}}, func(string) int { return 20 })
	opened := 0
	open := source.Open
	source.Open = func(position int64) (*output.Reader, error) {
		opened++
		return open(position)
	}
	check := func(wantOpen bool, q lineQuery) {
		t.Helper()
		page, err := newLineCache().Read(t.Context(), source, q)
		if err != nil || len(page.Lines) < 2 {
			t.Fatal(show(page.Lines), err)
		}
		line := page.Lines[len(page.Lines)-2]
		if text := string(line.Data); !strings.HasSuffix(text, "\rdone  60000 of 60000") || len(text) > maxLineText || !line.Truncated || line.Open != wantOpen {
			t.Errorf("%d bytes, %.30q … %q, truncated %v, open %v", len(text), text, text[max(0, len(text)-30):], line.Truncated, line.Open)
		}
	}
	for _, q := range []lineQuery{{From: 1, First: 3}, {First: 2, Last: true}, {First: 3, From: 2}} {
		opened = 0
		check(true, q)
		if opened != 3 { // to count, to read, and to skip the middle
			t.Error("the log was opened", opened, "times")
		}
	}
	end(t, &source, l, 0)
	check(false, lineQuery{From: 1, First: 3})
}

// TestTheLastLinesAreThoseAtTheEnd: also the first call for them counts all output.
func TestTheLastLinesAreThoseAtTheEnd(t *testing.T) {
	const lines = 2*workLines + workLines/2
	source, l := write(t, []piece{{1, strings.Repeat("\n", lines)}, {1, "last\n"}}, wholes)
	end(t, &source, l, 0)
	page, err := newLineCache().Read(t.Context(), source, lineQuery{First: 1, Last: true})
	if err != nil || !page.Counted || len(page.Lines) != 1 || page.Lines[0].Number != lines+1 || string(page.Lines[0].Data) != "last" {
		t.Fatal(page, err)
	}
}

// TestPagesKnowUnfinishedCharacters: a follower that continues after a page gets the whole character.
func TestPagesKnowUnfinishedCharacters(t *testing.T) {
	source, l := write(t, []piece{{1, "a\xe2"}, {2, "b\xf0\x9f"}, {1, "\x82"}}, wholes)
	b := newLineCache()
	for _, step := range []struct {
		more []piece
		want runtime.Characters
	}{
		{nil, runtime.Characters{"\xe2\x82", "\xf0\x9f"}},
		{[]piece{{1, "\xac"}}, runtime.Characters{"", "\xf0\x9f"}},
		{[]piece{{0, "lost"}, {1, "\xc3"}}, runtime.Characters{"\xc3", ""}},
	} {
		add(t, l, step.more, wholes)
		page, err := b.Read(t.Context(), source, lineQuery{From: 1, First: 9})
		if err != nil || page.Begun != step.want {
			t.Errorf("%q, %v; want %q", page.Begun, err, step.want)
		}
	}
}
