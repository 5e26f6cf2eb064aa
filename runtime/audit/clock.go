package audit

import (
	"time"

	"github.com/google/uuid"
)

// A clock makes ids that sort in the order in which they were made. If the time is set back by more
// than mostAhead, ids follow the new time, so that filters by time stay correct. [uuid.NewV7]
// doesn't ensure that.
type clock struct {
	last int64 // the tick of the last id
}

// ticks is how finely an id divides a millisecond (RFC 9562, section 6.2, method 3).
const ticks = 1 << 12

// mostAhead bounds how far ids may run ahead of the time.
const mostAhead = 100 // milliseconds

// id returns the ID of an entry made at a time: a UUIDv7 that sorts after the previous one, unless
// the time was set back by more than mostAhead. The caller holds the log's lock.
func (c *clock) id(at time.Time) string {
	tick := at.UnixMilli()*ticks + int64(at.Nanosecond()%1e6)*ticks/1e6
	if tick <= c.last && c.last-tick < mostAhead*ticks {
		tick = c.last + 1
	}
	c.last = tick
	id := uuid.Must(uuid.NewV7()) // supplies the random part and the version
	millis := tick / ticks
	// 48 bits of milliseconds, then 12 bits of ticks (RFC 9562, section 5.7).
	for i := range 6 {
		id[i] = byte(millis >> (40 - 8*i))
	}
	id[6] = id[6]&0xf0 | byte(tick%ticks>>8)
	id[7] = byte(tick)
	return id.String()
}
