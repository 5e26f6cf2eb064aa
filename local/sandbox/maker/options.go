package maker

import (
	"strings"

	"golang.org/x/sys/unix"
)

type mountOptions struct {
	flags     uintptr // of mount(2)
	data      string  // for the file system
	attr      uint64  // of mount_setattr(2), for this mount only
	recursive uint64  // of mount_setattr(2), for this mount and those below
	rbind     bool
}

// options has the mount options that a spec can have; others are passed to the file system.
var options = map[string]mountOptions{
	"ro":      {flags: unix.MS_RDONLY, attr: unix.MOUNT_ATTR_RDONLY},
	"nosuid":  {flags: unix.MS_NOSUID, attr: unix.MOUNT_ATTR_NOSUID},
	"nodev":   {flags: unix.MS_NODEV, attr: unix.MOUNT_ATTR_NODEV},
	"noexec":  {flags: unix.MS_NOEXEC, attr: unix.MOUNT_ATTR_NOEXEC},
	"rro":     {recursive: unix.MOUNT_ATTR_RDONLY},
	"rnosuid": {recursive: unix.MOUNT_ATTR_NOSUID},
	"rnodev":  {recursive: unix.MOUNT_ATTR_NODEV},
	"bind":    {flags: unix.MS_BIND},
	"rbind":   {flags: unix.MS_BIND, rbind: true},
	"rw":      {},
}

func parseOptions(all []string) (o mountOptions) {
	var data []string
	for _, name := range all {
		known, ok := options[name]
		if !ok {
			data = append(data, name)
			continue
		}
		o.flags |= known.flags
		o.attr |= known.attr
		o.recursive |= known.recursive
		o.rbind = o.rbind || known.rbind
	}
	o.data = strings.Join(data, ",")
	return o
}
