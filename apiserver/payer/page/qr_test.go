package page

import (
	"image"
	"image/color"
	"image/draw"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The QR code is read as it was written.
func TestQRCode_Reads(t *testing.T) {
	for range 100 {
		id := session.NewID("abcdefgh2345", false).String()
		for _, text := range []string{"pay://qr/" + id, "https://pay.example.com/pay/" + id, strings.Repeat("a", 60) + "://qr/" + id} {
			code, err := NewCode(text)
			if err != nil {
				t.Fatal(err)
			}
			read, level := scan(t, code)
			if read != text || level != "M" {
				t.Fatalf("read %q at level %s, want %q at M", read, level, text)
			}
		}
	}
}

// The quiet zone is four modules wide.
func TestQRCode_QuietZone(t *testing.T) {
	code, err := NewCode("pay://qr/x")
	if err != nil {
		t.Fatal(err)
	}
	modules := paint(t, code, 1)
	black := image.Rectangle{Min: image.Pt(code.Size, code.Size)}
	for y := range code.Size {
		for x := range code.Size {
			if modules.GrayAt(x, y).Y == 0 {
				black.Min = image.Pt(min(black.Min.X, x), min(black.Min.Y, y))
				black.Max = image.Pt(max(black.Max.X, x+1), max(black.Max.Y, y+1))
			}
		}
	}
	if want := image.Rect(4, 4, code.Size-4, code.Size-4); black != want {
		t.Errorf("black modules are in %v of %d, want %v", black, code.Size, want)
	}
}

// The SVG has its size.
func TestQRCode_SVGSize(t *testing.T) {
	code, err := NewCode("pay://qr/x")
	if err != nil {
		t.Fatal(err)
	}
	svg := string(code.SVG(500))
	if !strings.HasPrefix(svg, `<svg xmlns="http://www.w3.org/2000/svg" width="500" height="500" viewBox="0 0 `) || !strings.Contains(svg, `fill="#fff"`) ||
		!strings.Contains(svg, `<path stroke="#000" d="`+code.Path+`"/>`) {
		t.Error(svg)
	}
	if len(svg) > 4096 {
		t.Errorf("%d bytes, want few", len(svg))
	}
}

// scan reads a code from its picture.
func scan(t *testing.T, code Code) (text, level string) {
	t.Helper()
	bitmap, err := gozxing.NewBinaryBitmapFromImage(paint(t, code, 4))
	if err != nil {
		t.Fatal(err)
	}
	// Without the hint the reader looks for the code in a photograph, and fails at one in a thousand, with each encoder.
	hints := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
	read, err := qrcode.NewQRCodeReader().Decode(bitmap, hints)
	if err != nil {
		t.Fatal(err)
	}
	level, _ = read.GetResultMetadata()[gozxing.ResultMetadataType_ERROR_CORRECTION_LEVEL].(string)
	return read.GetText(), level
}

// step is a command of a path.
var step = regexp.MustCompile(`^(?:M(\d+) (\d+)\.5|m(\d+) 0|h(\d+))`)

// paint draws the path as a browser does, scale pixels for each module.
func paint(t *testing.T, code Code, scale int) *image.Gray {
	t.Helper()
	painted := image.NewGray(image.Rect(0, 0, code.Size*scale, code.Size*scale))
	draw.Draw(painted, painted.Bounds(), image.White, image.Point{}, draw.Src)
	x, y := 0, 0
	for rest := code.Path; rest != ""; {
		found := step.FindStringSubmatch(rest)
		if found == nil {
			t.Fatalf("not a command of ours: %.20s", rest)
		}
		rest = rest[len(found[0]):]
		number := func(group int) int {
			n, _ := strconv.Atoi(found[group])
			return n
		}
		switch found[0][0] {
		case 'M':
			x, y = number(1), number(2)
		case 'm':
			x += number(3)
		case 'h':
			run := image.Rect(x*scale, y*scale, (x+number(4))*scale, (y+1)*scale)
			draw.Draw(painted, run, image.NewUniform(color.Gray{}), image.Point{}, draw.Src)
			x += number(4)
		}
	}
	return painted
}
