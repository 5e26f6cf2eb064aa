package watch

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func message(kind uint16, table string) []byte {
	attribute := binary.NativeEndian.AppendUint16(nil, uint16(unix.NLA_HDRLEN+len(table)+1))
	attribute = binary.NativeEndian.AppendUint16(attribute, tableName)
	attribute = append(append(attribute, table...), 0)
	m := binary.NativeEndian.AppendUint32(nil, uint32(headers+len(attribute)))
	m = binary.NativeEndian.AppendUint16(m, subsystem<<8|kind)
	m = append(append(m, make([]byte, headers-len(m))...), attribute...)
	return append(m, make([]byte, align(len(m))-len(m))...)
}

// TestTables: messages of other tables are parsed to their end. A malformed one may be about any
// table.
func TestTables(t *testing.T) {
	three := slices.Concat(message(deleteTable, "rockpool-a"), message(newRule, "b"), message(newTable, "c"), message(deleteChain, "rockpool"))
	for _, test := range []struct {
		name     string
		messages []byte
		want     []string
	}{
		{"nothing", nil, nil},
		{"several", three, []string{"rockpool-a", "b", "c", "rockpool"}},
		{"another subsystem's", append(message(deleteTable, "a")[:5:5], append([]byte{1}, message(deleteTable, "a")[6:]...)...), nil},
		{"one that is cut", three[:len(three)-4], []string{"rockpool-a", "b", "c", ""}},
		{"a length of nothing", slices.Concat(make([]byte, headers), three), []string{""}},
	} {
		if got := tables(test.messages); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func FuzzTables(f *testing.F) {
	f.Add(message(deleteTable, "rockpool"))
	f.Fuzz(func(_ *testing.T, messages []byte) { tables(messages) })
}
