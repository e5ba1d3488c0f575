// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"liqo.io/liqo/playground/internal/image/oci"
)

// Debian is a set of files taken from Debian packages. Their contents lie unpacked in
// the cache, which stays locked, until Close.
type Debian struct {
	Files    []oci.File
	Packages []string // that gave files, "name=version", sorted
	spool    string
	lock     *os.File
}

// Close removes the unpacked contents and frees the cache; Files cannot be written to
// an image after it.
func (d *Debian) Close() error { return errors.Join(os.RemoveAll(d.spool), d.lock.Close()) }

// Fetch resolves sel.Packages in the machine's own Debian release with apt, downloads
// what is not yet below cacheDir, and takes the selected files. It installs nothing
// and needs no root. The versions are the current ones, which Packages lists. While another
// Fetch or an unclosed Debian uses cacheDir, it waits.
func Fetch(ctx context.Context, cacheDir string, sel Selection) (_ *Debian, err error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("fetch Debian packages: %w; this needs a Debian or Ubuntu machine", err)
		}
	}
	// apt resolves relative directories against its own root.
	cacheDir, err = filepath.Abs(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("fetch Debian packages: %w", err)
	}
	lock, err := lockDir(ctx, cacheDir)
	if err != nil {
		return nil, fmt.Errorf("fetch Debian packages: %w", err)
	}
	debian := &Debian{spool: filepath.Join(cacheDir, "spool"), lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, debian.Close())
		}
	}()
	archives, err := download(ctx, cacheDir, sel.Packages)
	if err != nil {
		return nil, fmt.Errorf("fetch Debian packages %s: %w", strings.Join(sel.Packages, " "), err)
	}
	// A killed process may have left its spool; the lock proves that no process uses it.
	if err := errors.Join(os.RemoveAll(debian.spool), os.Mkdir(debian.spool, 0o700)); err != nil {
		return nil, fmt.Errorf("unpack Debian packages: %w", err)
	}
	files := newTree()
	for _, archive := range archives {
		if err := unpack(ctx, archive, debian.spool, files); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", archive.path, err)
		}
	}
	debian.Files, debian.Packages, err = files.closure(sel)
	if err != nil {
		return nil, err
	}
	if sel.BusyBox != "" {
		list, err := listApplets(ctx, debian, sel.BusyBox)
		if err != nil {
			return nil, fmt.Errorf("applets of %s: %w", sel.BusyBox, err)
		}
		debian.Files = append(debian.Files, appletLinks(list, sel.BusyBox)...)
	}
	return debian, nil
}

// lockDir makes dir if needed and waits until this process alone uses it.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "playground.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// The kernel offers no wait with a deadline, so it is asked again and again.
	for retry := time.NewTicker(100 * time.Millisecond); ; {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			retry.Stop()
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process holds %s: %w", lock.Name(), context.Cause(ctx)), lock.Close())
		case <-retry.C:
		}
	}
}

// unpack decompresses one package into spool and adds its files to the tree. The
// tar stays one file, and contents are sections of it: nothing is written to paths
// that a package chooses.
func unpack(ctx context.Context, archive debArchive, spool string, files *tree) error {
	spooled := filepath.Join(spool, filepath.Base(archive.path)+".tar")
	out, err := os.OpenFile(spooled, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", archive.path)
	command.Stdout = out
	if err := run(command); err != nil {
		return errors.Join(err, out.Close())
	}
	listed, err := list(out)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	for _, file := range listed {
		files.add(archive.id(), file)
	}
	return nil
}

// list reads the table of contents of a tar file. Hard links become regular files of
// the same content.
func list(in *os.File) ([]oci.File, error) {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var files []oci.File
	regular := map[string]oci.Content{}
	reader := tar.NewReader(in)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read tar: %w", err)
		}
		name := path.Join("/", header.Name)
		mode := header.FileInfo().Mode()
		switch header.Typeflag {
		case tar.TypeReg:
			// The tar reader does not read ahead, so the content starts here.
			offset, err := in.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			regular[name] = oci.Section(in.Name(), offset, header.Size)
			files = append(files, oci.Regular(name, mode, regular[name]))
		case tar.TypeLink:
			content, ok := regular[path.Join("/", header.Linkname)]
			if !ok {
				return nil, fmt.Errorf("%w: %s is a hard link to %s, which does not come before it", errTree, name, header.Linkname)
			}
			files = append(files, oci.Regular(name, mode, content))
			regular[name] = content
		case tar.TypeSymlink:
			files = append(files, oci.Symlink(name, header.Linkname))
		case tar.TypeDir:
			if name != "/" {
				files = append(files, oci.Dir(name, mode))
			}
		default: // devices and the like: no package we use has them, and an image cannot
			return nil, fmt.Errorf("%w: %s is of tar type %q", errTree, name, header.Typeflag)
		}
	}
}

// listApplets runs the static busybox found at location among the files.
func listApplets(ctx context.Context, debian *Debian, location string) (string, error) {
	for _, file := range debian.Files {
		if file.Path != mergedPath(location) || file.Mode.Type() != 0 {
			continue
		}
		program := filepath.Join(debian.spool, "busybox")
		if err := copyOut(file.Content, program); err != nil {
			return "", err
		}
		var out strings.Builder
		command := exec.CommandContext(ctx, program, "--list")
		command.Stdout = &out
		err := run(command)
		return out.String(), err
	}
	return "", fmt.Errorf("%w: not among the selected programs", errTree)
}

func copyOut(content oci.Content, program string) error {
	return content.With(func(r *io.SectionReader) (err error) {
		out, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		_, err = io.Copy(out, r)
		return err
	})
}

// appletLinks makes the links in /busybox for the applets of list, one per line. Left
// out are busybox itself, which it lists (the link would shadow the program), and its
// shells, which prefer built-in applets to the programs in PATH.
func appletLinks(list, location string) []oci.File {
	var links []oci.File
	for applet := range strings.FieldsSeq(list) {
		switch applet {
		case "busybox", "sh", "ash", "hush":
			continue
		}
		links = append(links, oci.Symlink("/busybox/"+applet, mergedPath(location)))
	}
	return links
}

// run runs a command. The error holds the end of its error output.
func run(command *exec.Cmd) error {
	var complaint strings.Builder
	command.Stderr = &complaint
	if err := command.Run(); err != nil {
		const most = 2000
		text := strings.TrimSpace(complaint.String())
		if len(text) > most {
			text = "..." + text[len(text)-most:]
		}
		return fmt.Errorf("%s: %w: %s", filepath.Base(command.Path), err, text)
	}
	return nil
}

// isFile reports whether path is a regular file of the given size.
func isFile(name string, size int64) (bool, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.Mode().IsRegular() && info.Size() == size, nil
}
