package bed

import "testing"

func TestRowsThatDoNotFitSayWhatTheyNeed(t *testing.T) {
	each := room{CPUMHz: 2000, MemoryMiB: 512}
	for _, test := range []struct {
		free    room
		runners int
		want    string
	}{
		{room{1_200_000, 196_608}, 500, "500 runners of 512 MiB need 256000 MiB, and runners can be promised 196608 MiB here"},
		{room{999_999, 300_000}, 500, "500 runners of 2000 MHz need 1000000 MHz, and runners can be promised 999999 MHz here"},
		{room{1_000_000, 256_000}, 500, ""},
		{room{}, 0, ""},
	} {
		if got := test.free.lacks(test.runners, each); got != test.want {
			t.Errorf("%d runners in %+v: %q, want %q", test.runners, test.free, got, test.want)
		}
	}
}
