package quantity

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// Flags makes kong read quantities: every time.Duration, and numbers whose tag is
// type:"time" or type:"size". The tag unit is the unit of a bare number and of the value:
// by default seconds or bytes. The tags from and to bound the value. Without them the
// caller checks the value; one that is too large for 64 bits becomes the largest one.
func Flags() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		mapper := kong.MapperFunc(decode)
		return errors.Join(kong.NamedMapper(timeType, mapper).Apply(k), kong.NamedMapper(sizeType, mapper).Apply(k), kong.TypeMapper(reflect.TypeFor[time.Duration](), mapper).Apply(k))
	})
}

// The values of the tag type.
const (
	timeType = "time"
	sizeType = "size"
)

// decode reads the quantity of a flag into its field.
func decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto(ctx.Value.Tag.Type, &text); err != nil {
		return err
	}
	n, err := of(ctx.Value).read(text)
	if err != nil {
		return err
	}
	if target.Kind() == reflect.Pointer {
		target = target.Elem()
	}
	if target.OverflowInt(n) {
		return fmt.Errorf("%q is too large", text)
	}
	target.SetInt(n)
	return nil
}

// A kind describes a flag's quantity.
type kind struct {
	size     bool
	unit     string // of a bare number
	counted  int64  // nanoseconds or bytes of one of the flag's number
	from, to string // if empty, the caller checks the bounds
}

// Is reports whether a flag has a quantity.
func Is(value *kong.Value) bool {
	t := value.Target.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := value.Tag.Type
	return name == timeType || name == sizeType || t == reflect.TypeFor[time.Duration]()
}

// of returns the kind of a flag that has a quantity. It panics if the flag's tag has an invalid
// unit.
func of(value *kong.Value) kind {
	k := kind{size: value.Tag.Type == sizeType, unit: value.Tag.Get("unit"), from: value.Tag.Get("from"), to: value.Tag.Get("to"), counted: 1}
	switch {
	case k.size && k.unit == "":
		k.unit = "B"
	case k.unit == "":
		k.unit = "s"
	}
	if value.Tag.Type == timeType || k.size {
		k.counted = k.bare()
	}
	return k
}

// bare returns the nanoseconds or bytes of one unit.
func (k kind) bare() int64 {
	n, err := k.parse("1"+k.unit, 1)
	if err != nil {
		panic(fmt.Sprintf("the unit %q: %v", k.unit, err)) // a tag is wrong
	}
	return n
}

// parse returns the nanoseconds or bytes of a text. unit is the value of 1 without a unit.
func (k kind) parse(text string, unit int64) (int64, error) {
	if k.size {
		return Size(text, unit)
	}
	d, err := Duration(text, time.Duration(unit))
	return int64(d), err
}

// read returns the flag's number for a text.
func (k kind) read(text string) (int64, error) {
	n, err := k.parse(text, k.bare())
	if err != nil && !errors.Is(err, ErrRange) {
		return 0, fmt.Errorf("%q must be %s", text, k.forms())
	}
	if k.to != "" {
		from, err1 := k.parse(k.from, k.bare())
		to, err2 := k.parse(k.to, k.bare())
		if err := errors.Join(err1, err2); err != nil {
			panic(fmt.Sprintf("the range %s to %s: %v", k.from, k.to, err)) // a tag is wrong
		}
		if n < from || n > to || err != nil {
			return 0, fmt.Errorf("%q must be %s", text, k.bounds())
		}
	}
	if err == nil && n%k.counted != 0 {
		return 0, fmt.Errorf("%q must be whole %s", text, k.name())
	}
	return n / k.counted, nil
}

// bounds describes the allowed values.
func (k kind) bounds() string {
	bounds := k.from + " to " + k.to
	if _, err := strconv.Atoi(k.to); err == nil {
		bounds += " " + k.name()
	}
	return bounds
}

// name returns the unit's name.
func (k kind) name() string {
	if name, ok := map[string]string{"B": "bytes", "s": "seconds", "ms": "milliseconds"}[k.unit]; ok {
		return name
	}
	return k.unit
}

// forms describes the allowed forms.
func (k kind) forms() string {
	if k.size {
		return fmt.Sprintf("a size: a number of %s, or as in 512M, 512MB, 1GiB", k.name())
	}
	return fmt.Sprintf("a time: a number of %s, or as in 90s, 1m, 1h30m, 2d", k.name())
}

// Wrong returns the form that a flag's quantity must have, or "" if the text has it.
func Wrong(value *kong.Value, text string) string {
	k := of(value)
	if _, err := k.parse(text, k.bare()); err != nil && !errors.Is(err, ErrRange) {
		return k.forms()
	}
	return ""
}

// Help returns a flag's help, with the forms of its quantity if it has one.
func Help(value *kong.Value) string {
	help := kong.DefaultHelpValueFormatter(value)
	if !Is(value) {
		return help
	}
	return help + " " + Form(value) + "."
}

// Form describes in short the forms of a flag's quantity.
func Form(value *kong.Value) string {
	if k := of(value); k.size {
		return fmt.Sprintf("SIZE: 512 (%s), 512M, 512MB or 1GiB", k.name())
	}
	return fmt.Sprintf("TIME: 90 (%s), 90s, 1h30m or 2d", of(value).name())
}

// Examples returns values for shell completion of a flag; none for flags without a quantity.
func Examples(value *kong.Value) []string {
	switch {
	case !Is(value):
		return nil
	case of(value).size:
		return []string{"64MiB", "256MiB", "512MiB", "1GiB", "4GiB"}
	}
	return []string{"10s", "90s", "1m", "10m", "1h", "1h30m", "1d", "7d"}
}
