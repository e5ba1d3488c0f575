// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameAnnotation is the annotation from which containerd reads the full image name of an index entry.
const nameAnnotation = "io.containerd.image.name"

// Write writes img to w as an OCI image-layout tar with one uncompressed layer and
// returns the digest of its manifest. File contents are read twice (first for the
// digest, which is the layer's name in the archive) and never held in memory; a file
// that changes in between is an error.
func Write(w io.Writer, img Image) (digest.Digest, error) {
	plan, err := describe(img)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", img.Name, err)
	}
	if err := plan.write(w); err != nil {
		return "", fmt.Errorf("image %s: %w", img.Name, err)
	}
	return plan.manifest.digest, nil
}

// WriteFile writes img to the file archive, whole or not at all: a reader never sees
// half an archive, and an interrupted build leaves the old one.
func WriteFile(archive string, img Image) (id digest.Digest, err error) {
	file, err := os.CreateTemp(filepath.Dir(archive), "."+filepath.Base(archive)+".*")
	if err != nil {
		return "", fmt.Errorf("write image %s: %w", img.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	id, err = Write(file, img)
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	if err = os.Rename(file.Name(), archive); err != nil {
		return "", fmt.Errorf("write image %s: %w", img.Name, err)
	}
	return id, nil
}

// blob is one content-addressed part of the archive.
type blob struct {
	digest digest.Digest
	data   []byte
}

// layout is everything of an archive but the layer's bytes.
type layout struct {
	index            []byte
	manifest, config blob
	layer            ocispec.Descriptor
	files            []File
}

// describe computes the metadata of img, reading each file once.
func describe(img Image) (layout, error) {
	refName, err := Tag(img.Name)
	if err != nil {
		return layout{}, err
	}
	files, err := Complete(img.Files)
	if err != nil {
		return layout{}, err
	}
	layer, err := layerDescriptor(files)
	if err != nil {
		return layout{}, err
	}
	platform := ocispec.Platform{Architecture: img.Architecture, OS: "linux"}
	if platform.Architecture == "" {
		platform.Architecture = runtime.GOARCH
	}
	workDir := img.WorkDir
	if workDir == "" {
		workDir = "/"
	}
	config, err := encode(ocispec.Image{
		Created:  &epoch,
		Platform: platform,
		Config: ocispec.ImageConfig{
			User: img.User, Env: img.Env, Entrypoint: img.Entrypoint, Cmd: img.Cmd, WorkingDir: workDir, Labels: img.Labels,
		},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	})
	if err != nil {
		return layout{}, err
	}
	manifest, err := encode(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    config.descriptor(ocispec.MediaTypeImageConfig),
		Layers:    []ocispec.Descriptor{layer},
	})
	if err != nil {
		return layout{}, err
	}
	entry := manifest.descriptor(ocispec.MediaTypeImageManifest)
	entry.Platform = &platform
	entry.Annotations = map[string]string{nameAnnotation: img.Name, ocispec.AnnotationRefName: refName}
	index, err := encode(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{entry},
	})
	if err != nil {
		return layout{}, err
	}
	return layout{index: index.data, manifest: manifest, config: config, layer: layer, files: files}, nil
}

func layerDescriptor(files []File) (ocispec.Descriptor, error) {
	digester, size := digest.Canonical.Digester(), counter(0)
	if err := WriteLayer(io.MultiWriter(digester.Hash(), &size), files); err != nil {
		return ocispec.Descriptor{}, err
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digester.Digest(), Size: int64(size)}, nil
}

func (l layout) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	archive := tar.NewWriter(out)
	version, err := encode(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		data []byte
	}{
		{ocispec.ImageLayoutFile, version.data},
		{ocispec.ImageIndexFile, l.index},
		{blobName(l.manifest.digest), l.manifest.data},
		{blobName(l.config.digest), l.config.data},
	} {
		if err := archive.WriteHeader(partHeader(part.name, int64(len(part.data)))); err != nil {
			return fmt.Errorf("archive part %s: %w", part.name, err)
		}
		if _, err := archive.Write(part.data); err != nil {
			return fmt.Errorf("archive part %s: %w", part.name, err)
		}
	}
	if err := l.writeLayerBlob(archive); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("end of archive: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("end of archive: %w", err)
	}
	return nil
}

// writeLayerBlob writes the layer a second time, now into the archive, and checks
// that it still matches its name.
func (l layout) writeLayerBlob(archive *tar.Writer) error {
	if err := archive.WriteHeader(partHeader(blobName(l.layer.Digest), l.layer.Size)); err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	digester := digest.Canonical.Digester()
	err := WriteLayer(io.MultiWriter(archive, digester.Hash()), l.files)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && digester.Digest() != l.layer.Digest {
		return fmt.Errorf("layer changed while the image was written (a binary rebuilt meanwhile?): %w; run it again", errChanged)
	}
	return err
}

// errChanged marks content that differed between its two readings.
var errChanged = errors.New("content read twice differs")

func blobName(id digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + id.Algorithm().String() + "/" + id.Encoded()
}

func partHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: epoch}
}

// encode relies on encoding/json for a stable order: struct fields as declared, map
// keys sorted.
func encode(value any) (blob, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return blob{}, fmt.Errorf("encode %T: %w", value, err)
	}
	return blob{digest: digest.FromBytes(data), data: data}, nil
}

func (b blob) descriptor(mediaType string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: b.digest, Size: int64(len(b.data))}
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
