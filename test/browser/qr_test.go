package browser

import (
	"bytes"
	"image/png"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

// decode reads the QR code in a screenshot.
func decode(t *testing.T, screenshot []byte) string {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	code, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_TRY_HARDER: true})
	if err != nil {
		t.Errorf("read the QR code: %v", err)
		return ""
	}
	return code.GetText()
}

// What a camera sees: on a phone in light, dark and forced colours, on paper of 58 mm, and of the code by itself.
func TestTheQRCodeHoldsThePayload(t *testing.T) {
	t.Parallel()
	id := newShop(t).charge(t)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Language: "ar"})
	page.Open(pageURL(id))
	for name, media := range colours {
		page.SetMedia("", media)
		if got := decode(t, page.Screenshot()); got != "pay://qr/"+id {
			t.Errorf("%s: %q", name, got)
		}
	}
	const paper, dotsPerPixel = 219, 203.0 / 96 // 58 mm in CSS pixels, and a receipt printer's 203 dots per inch
	page.SetMedia("print", map[string]string{"prefers-color-scheme": "dark"})
	page.SetViewport(paper, 600, dotsPerPixel)
	if got := decode(t, page.Screenshot()); got != "pay://qr/"+id {
		t.Errorf("printed: %q", got)
	}
	if wide := browsertest.Eval[int](page, "document.documentElement.scrollWidth"); wide > paper {
		t.Errorf("printed, the page is %d pixels wide, the paper %d", wide, paper)
	}
	if browsertest.Eval[bool](page, "[...document.querySelectorAll('.screen')].some(e => e.checkVisibility())") {
		t.Error("printed, the page shows what only a screen can")
	}
	code := sharedBrowser.NewPage(t, browsertest.Settings{Media: colours["dark"]})
	code.Open(pageURL(id) + "/qr.svg")
	if got := decode(t, code.Screenshot()); got != "pay://qr/"+id {
		t.Errorf("qr.svg: %q", got)
	}
}
