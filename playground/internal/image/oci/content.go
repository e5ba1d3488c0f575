// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Content is the source of a regular file's bytes: memory, a file of this
// machine, or a part of one. It is a plain value; nothing is open between uses, so
// describing an image of many large files costs no memory and no descriptors. The
// zero value is an empty file.
type Content struct {
	Inline []byte
	path   string
	offset int64
	size   int64 // of a section; wholeFile otherwise
}

const wholeFile = -1

// Inline is content held in memory, for small generated files.
func Inline(text string) Content { return Content{Inline: []byte(text)} }

// HostFile is the content of a file of this machine, read when the image is written.
func HostFile(path string) Content { return Content{path: path, size: wholeFile} }

// Section is size bytes of a file of this machine, from offset.
func Section(path string, offset, size int64) Content {
	return Content{path: path, offset: offset, size: size}
}

// With opens the content, hands it to use, and closes it.
func (c Content) With(use func(*io.SectionReader) error) (err error) {
	if c.path == "" {
		return use(io.NewSectionReader(bytes.NewReader(c.Inline), 0, int64(len(c.Inline))))
	}
	file, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("read image content: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	size := c.size
	if size == wholeFile {
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("read image content: %w", err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("read image content: %s is %s, want a regular file", c.path, info.Mode().Type())
		}
		size = info.Size()
	}
	return use(io.NewSectionReader(file, c.offset, size))
}
