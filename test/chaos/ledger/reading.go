package ledger

import (
	"bytes"
	"strconv"
)

// A Reading judges the output that one reader gets of one program. It compares the output only with
// what the program must have printed. It is a value: a reader that goes back to an earlier cursor
// continues with its copy from there.
type Reading struct {
	at       [streams]int64 // the next byte of each stream
	torn     [streams]string
	declared int64 // bytes that the server reported as lost and that aren't missed yet

	// The results.
	silent, repeated, foreign int64
	explained                 int64 // missed bytes that the server had reported as lost
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
		case !ok && len(text) < 2*recordBytes: // the next piece says where it belongs
			r.torn[stream] = text
			return
		case !ok:
			r.foreign += int64(len(text))
			return
		}
		r.jump(stream, number*recordBytes-int64(skip))
		if n = r.match(stream, text[:skip]); n < skip { // the bytes before that record aren't those printed there
			r.foreign += int64(skip - n)
			r.at[stream] = number * recordBytes
		}
		text = text[skip:]
	}
}

// Lost records bytes that the server reports as lost.
func (r *Reading) Lost(bytes int64) { r.declared += bytes }

// BackTo returns an earlier reading, to continue from there. It keeps the faults found since.
func (r *Reading) BackTo(earlier Reading) Reading {
	earlier.silent, earlier.repeated, earlier.foreign = r.silent, r.repeated, r.foreign
	return earlier
}

// match returns how many bytes of text are the expected next ones.
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

// jump continues from another byte than the expected one.
func (r *Reading) jump(stream int, to int64) {
	if gap := to - r.at[stream]; gap < 0 {
		r.repeated -= gap
	} else {
		r.missed(gap)
	}
	r.at[stream] = max(to, 0)
}

// missed records bytes that didn't arrive. As many declared bytes explain them.
func (r *Reading) missed(gap int64) {
	known := min(gap, r.declared)
	r.declared -= known
	r.explained += known
	r.silent += gap - known
}

// end judges the end of the output. If the program exited, every byte must have arrived or have
// been declared lost.
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

// came returns how many bytes were verified.
func (r *Reading) came() int64 {
	all := -r.explained - r.silent
	for stream := range streams {
		all += r.at[stream]
	}
	return all
}

// extent returns how many bytes there were: arrived or declared lost.
func (r *Reading) extent() int64 {
	all := r.declared - r.silent
	for stream := range streams {
		all += r.at[stream]
	}
	return all
}

// nextRecord finds the first complete record in text.
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

// parseRecord returns the number of a record. text has exactly recordBytes bytes. false means it isn't a
// record of this stream.
func parseRecord(stream int, text string) (int64, bool) {
	if text[0] != byte('0'+stream) || text[recordBytes-1] != '\n' {
		return 0, false
	}
	number, err := strconv.ParseUint(text[1:recordBytes-1], 10, 63)
	return int64(number), err == nil
}

// StreamOf returns the index of the API's name of a stream.
func StreamOf(name string) int {
	if name == "STDERR" {
		return stderr
	}
	return stdout
}
