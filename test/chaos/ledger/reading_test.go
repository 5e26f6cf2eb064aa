package ledger

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// printed returns what a program prints on its standard output, from one byte to another.
func printed(from, to int64) string {
	var b strings.Builder
	for number := int64(0); number*recordBytes < to; number++ {
		b.WriteString(record(stdout, number))
	}
	return b.String()[from:to]
}

// ten is a program that prints ten records and nothing else.
var ten = Program{Key: "p", blocks: 1, each: 10, code: 7}

func TestReading(t *testing.T) {
	const all = 10 * recordBytes
	for _, test := range []struct {
		name                      string
		text                      string
		declared                  int64
		silent, repeated, foreign int64
		explained, left           int64
	}{
		{"all of it", printed(0, all), 0, 0, 0, 0, 0, 0},
		{"a byte is missing", printed(0, 37) + printed(38, all), 0, 1, 0, 0, 0, 0},
		{"the first bytes are missing", printed(5, all), 0, 5, 0, 0, 0, 0},
		{"the last byte is missing", printed(0, all-1), 0, 1, 0, 0, 0, 0},
		{"three records are missing", printed(0, 32) + printed(80, all), 0, 48, 0, 0, 0, 0},
		{"no output", "", 0, all, 0, 0, 0, 0},
		{"declared loss", printed(0, 37) + printed(90, all), 53, 0, 0, 0, 53, 0},
		{"more lost than declared", printed(0, 37) + printed(90, all), 50, 3, 0, 0, 50, 0},
		{"declared loss of the end", printed(0, 60), all - 60, 0, 0, 0, all - 60, 0},
		{"declared loss, but whole output", printed(0, all), 4, 0, 0, 0, 0, 4},
		{"bytes come twice", printed(0, 50) + printed(30, all), 0, 0, 20, 0, 0, 0},
		{"all comes twice", printed(0, all) + printed(0, all), 0, 0, all, 0, 0, 0},
		{"a changed byte", printed(0, 37) + "x" + printed(38, all), 0, 0, 0, 11, 0, 0}, // until the next record
		{"something is added", printed(0, all) + strings.Repeat("x", 40), 0, 0, 0, 40, 0, 0},
		{"a little is added", printed(0, all) + "x", 0, 0, 0, 1, 0, 0},
		{"more records than it prints", printed(0, all+32), 0, 0, 0, 32, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 16, 33, 1000} {
				var r Reading
				r.declared = test.declared
				for text := test.text; text != ""; {
					n := min(size, len(text))
					r.Take(stdout, []byte(text[:n]))
					text = text[n:]
				}
				r.end(ten, true)
				if r.silent != test.silent || r.repeated != test.repeated || r.foreign != test.foreign || r.explained != test.explained || r.declared != test.left {
					t.Errorf("in pieces of %d: %+v", size, r)
				}
			}
		})
	}
}

// TestReadingRandomly removes or repeats one span of bytes anywhere. The judge counts exactly
// these, in whatever pieces the output arrives.
func TestReadingRandomly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const records = 200
	p := Program{blocks: 1, each: records}
	whole := printed(0, records*recordBytes)
	for range 2000 {
		from := random.IntN(len(whole))
		to := from + 1 + random.IntN(min(300, len(whole)-from))
		text, repeats := whole[:from]+whole[to:], random.IntN(2) == 0
		if repeats {
			text = whole[:to] + whole[from:]
		}
		var r Reading
		for text != "" {
			n := min(1+random.IntN(100), len(text))
			r.Take(stdout, []byte(text[:n]))
			text = text[n:]
		}
		r.end(p, true)
		n := int64(to - from)
		if to > len(whole)-2*recordBytes { // no complete record follows that says where its bytes belong
			if r.silent+r.repeated+r.foreign == 0 {
				t.Fatalf("%d to %d, repeats %t: %+v", from, to, repeats, r)
			}
			continue
		}
		if repeats && (r.repeated != n || r.silent != 0 || r.foreign != 0) || !repeats && (r.silent != n || r.repeated != 0 || r.foreign != 0) {
			t.Fatalf("%d to %d, repeats %t: %+v", from, to, repeats, r)
		}
	}
}

func TestReadingOfTwoStreams(t *testing.T) {
	p := Program{blocks: 8, each: 3}
	if total := p.total(); total != [streams]int64{6 * 3 * recordBytes, 2 * 3 * recordBytes} {
		t.Fatalf("it prints %v", total)
	}
	var r Reading
	for number := range int64(18) {
		r.Take(stdout, []byte(record(stdout, number)))
		if number%3 == 0 && number != 6 { // the third record is lost
			r.Take(stderr, []byte(record(stderr, number/3)))
		}
	}
	r.end(p, true)
	if r.silent != recordBytes || r.foreign != 0 || r.repeated != 0 {
		t.Errorf("%+v", r)
	}
	var other Reading
	other.Take(stderr, []byte(record(stdout, 0)+record(stdout, 1)))
	if other.end(p, false); other.foreign != 2*recordBytes {
		t.Errorf("records of the other stream: %+v", other)
	}
}

// TestRereadingKeepsEarlierFaults: a fault stays in the report when the reader goes back to before
// it.
func TestRereadingKeepsEarlierFaults(t *testing.T) {
	var r Reading
	r.Take(stdout, []byte(printed(0, 48)))
	before := r
	r.Take(stdout, []byte(printed(64, 96)))
	r = r.BackTo(before)
	r.Take(stdout, []byte(printed(48, 160)))
	r.end(ten, true)
	if r.silent != 16 || r.at[stdout] != 160 {
		t.Errorf("%+v", r)
	}
}

// TestNewProgramCoversAllEndings, and keeps each field in its range. No exit code is 0, which a
// made-up success would have.
func TestNewProgramCoversAllEndings(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kinds := map[Ending]int{}
	for range 500 {
		p := NewProgram(random, "k")
		kinds[p.Ends]++
		if p.code < 1 || p.code >= alreadyRan || p.each < 1 || p.blocks < 1 {
			t.Errorf("%+v", p)
		}
		if p.Ends <= endsBySignal && (p.least() < p.pause || p.least() > 10*time.Second) || p.Ends > endsBySignal && p.blocks != endless {
			t.Errorf("%+v takes %s", p, p.least())
		}
	}
	if len(kinds) != int(endings) {
		t.Errorf("only %v", kinds)
	}
}
