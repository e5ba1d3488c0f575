// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"io/fs"
)

// NonRoot is the user and group of every image that does not need root.
const NonRoot = "65532:65532"

// SearchPath is PATH of every image. /busybox comes last: its applets are poor
// versions of programs an image may have for real.
const SearchPath = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox"

// Skeleton returns the files of every image besides its programs: names for the two users,
// where names are looked up, and a /tmp everyone may write to.
func Skeleton() []File {
	return []File{
		Regular("/etc/passwd", 0o644, Inline("root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/tmp:/bin/sh\n")),
		Regular("/etc/group", 0o644, Inline("root:x:0:\nnonroot:x:65532:\n")),
		Regular("/etc/nsswitch.conf", 0o644, Inline("passwd: files\ngroup: files\nhosts: files dns\n")),
		Dir("/tmp", fs.ModeSticky|0o777),
	}
}
