package ledger

import (
	"bytes"
	"strconv"
)

// A Reading judges what one reader gets of one program's output, from what the
// program must have printed alone. It is a value: a copy is the reading at that
// point, to go on from when a reader goes back there.
type Reading struct {
	at       [streams]int64 // the next byte of each stream
	torn     [streams]string
	declared int64 // bytes that the server said were lost and that weren't missed yet

	// What was found out.
	silent, repeated, foreign int64
	explained                 int64 // bytes that were missed, as the server had said
}

// Take reads the next piece of a stream.
func (r *Reading) Take(stream int, piece []byte) {
	text := r.torn[stream] + string(piece)
	r.torn[stream] = ""
	for text != "" {
		n := r.match(stream, text)
		text = text[n:]
		if text == "" {
			return
		}
		skip, number, ok := nextRecord(stream, text)
		switch {
		case !ok && len(text) < 2*recordBytes: // where it belongs is in the next piece
			r.torn[stream] = text
			return
		case !ok:
			r.foreign += int64(len(text))
			return
		}
		r.jump(stream, number*recordBytes-int64(skip))
		if n = r.match(stream, text[:skip]); n < skip { // what is before that record isn't what was printed there
			r.foreign += int64(skip - n)
			r.at[stream] = number * recordBytes
		}
		text = text[skip:]
	}
}

// Lost takes bytes that the server says were lost.
func (r *Reading) Lost(bytes int64) { r.declared += bytes }

// BackTo returns an earlier reading, to go on from there. It forgets nothing that was
// wrong since.
func (r *Reading) BackTo(earlier Reading) Reading {
	earlier.silent, earlier.repeated, earlier.foreign = r.silent, r.repeated, r.foreign
	return earlier
}

// match returns how much of text is what comes next.
func (r *Reading) match(stream int, text string) int {
	n := 0
	for n < len(text) {
		at := r.at[stream]
		want := record(stream, at/recordBytes)[at%recordBytes:]
		same := 0
		for same < min(len(want), len(text)-n) && want[same] == text[n+same] {
			same++
		}
		n += same
		r.at[stream] += int64(same)
		if same < len(want) {
			break
		}
	}
	return n
}

// jump goes on from another byte than the one that was to come.
func (r *Reading) jump(stream int, to int64) {
	if gap := to - r.at[stream]; gap < 0 {
		r.repeated -= gap
	} else {
		r.missed(gap)
	}
	r.at[stream] = max(to, 0)
}

// missed takes bytes that didn't come: what was declared explains as many.
func (r *Reading) missed(gap int64) {
	known := min(gap, r.declared)
	r.declared -= known
	r.explained += known
	r.silent += gap - known
}

// end is the end of all output: of a program that ended by itself everything
// must have come, or have been declared.
func (r *Reading) end(p Program, whole bool) {
	for stream := range streams {
		if whole {
			if missing := p.total()[stream] - r.at[stream]; missing < 0 {
				r.foreign -= missing
			} else {
				r.missed(missing)
			}
		}
		r.foreign += int64(len(r.torn[stream]))
		r.torn[stream] = ""
	}
}

// came is how much of the program's output was verified.
func (r *Reading) came() int64 {
	all := -r.explained - r.silent
	for stream := range streams {
		all += r.at[stream]
	}
	return all
}

// extent is how many bytes there were, come or declared to be lost.
func (r *Reading) extent() int64 {
	all := r.declared - r.silent
	for stream := range streams {
		all += r.at[stream]
	}
	return all
}

// nextRecord finds the first whole record in text.
func nextRecord(stream int, text string) (skip int, number int64, ok bool) {
	for skip = 0; ; {
		rest := text[skip:]
		if len(rest) < recordBytes {
			return 0, 0, false
		}
		if number, ok := parseRecord(stream, rest[:recordBytes]); ok {
			return skip, number, true
		}
		line := bytes.IndexByte([]byte(rest), '\n')
		if line < 0 {
			return 0, 0, false
		}
		skip += line + 1
	}
}

func parseRecord(stream int, text string) (int64, bool) {
	if text[0] != byte('0'+stream) || text[recordBytes-1] != '\n' {
		return 0, false
	}
	number, err := strconv.ParseUint(text[1:recordBytes-1], 10, 63)
	return int64(number), err == nil
}

// StreamOf returns the stream of a name of the API.
func StreamOf(name string) int {
	if name == "STDERR" {
		return stderr
	}
	return stdout
}
