"""All kinds of images in all numbers of channels, against Pillow's pixels."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.harness import pictures

from infeed_server.transforms import DecodeImage

RNG = np.random.default_rng(15)
HEIGHT, WIDTH = 13, 19
RGB = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
ALPHA = RNG.integers(0, 256, (HEIGHT, WIDTH, 1), np.uint8)
RGBA = np.concatenate([RGB, ALPHA], 2)
WIDE = RNG.integers(0, 1 << 16, (HEIGHT, WIDTH, 4), np.uint16)
PALETTE = RNG.integers(0, 256, (256, 3), np.uint8)
SMOOTH = np.asarray(Image.fromarray(RGB).resize((90, 70), Image.Resampling.BICUBIC))

GAMMA = (b"gAMA", (45455).to_bytes(4, "big"))


def samples(bits: int, channels: int = 1) -> Any:
    return RNG.integers(0, 1 << bits, (HEIGHT, WIDTH, channels)).astype(np.uint16)


def colours(bits: int) -> tuple[bytes, bytes]:
    return b"PLTE", PALETTE[: 1 << bits].tobytes()


def pngs() -> dict[str, bytes]:
    kinds = {
        **{f"grey {bits}": pictures.png(samples(bits), bits, 0) for bits in (1, 2, 4, 8, 16)},
        # Pillow scales the grey of fewer bits, and not the transparent one, so it has to be 0.
        **{
            f"grey {bits} transparent": pictures.png(samples(bits), bits, 0, (b"tRNS", b"\0\0"))
            for bits in (1, 2, 4, 8)
        },
        **{
            f"palette {bits}": pictures.png(samples(bits), bits, 3, colours(bits))
            for bits in (1, 2, 4, 8)
        },
        **{
            f"palette {bits} transparent": pictures.png(
                samples(bits), bits, 3, colours(bits), (b"tRNS", bytes(range(1 << min(bits, 3))))
            )
            for bits in (1, 2, 4, 8)
        },
        "LA": pictures.png(samples(8, 2), 8, 4),
        "RGB": pictures.png(RGB, 8, 2),
        "RGB transparent": pictures.png(RGB, 8, 2, (b"tRNS", RGB[3, 4].astype(">u2").tobytes())),
        "RGB gamma": pictures.png(RGB, 8, 2, GAMMA),
        "RGBA": pictures.png(RGBA, 8, 6),
        "grey interlaced": pictures.png(samples(2), 2, 0, interlaced=True),
        "palette interlaced": pictures.png(samples(4), 4, 3, colours(4), interlaced=True),
        "RGB interlaced": pictures.png(RGB, 8, 2, interlaced=True),
        "RGB 16": pictures.png(WIDE[..., :3], 16, 2),
        "RGBA 16": pictures.png(WIDE, 16, 6),
        "RGB 16 interlaced": pictures.png(WIDE[..., :3], 16, 2, interlaced=True),
        "LA 16": pictures.png(WIDE[..., :2], 16, 4),
    }
    return {f"PNG {name}": contents for name, contents in kinds.items()}


def gifs() -> dict[str, bytes]:
    indices = samples(8)[..., 0]
    later = pictures.gif_frame(np.zeros(indices.shape, int))
    kinds = {
        "global": pictures.gif(indices, PALETTE),
        "local": pictures.gif(indices, PALETTE, local=True),
        "transparent": pictures.gif(indices % 8, PALETTE[:8], transparent=3),
        "interlaced": pictures.gif(indices, PALETTE, interlaced=True),
        "extensions": pictures.gif(indices, PALETTE, extensions=b"!\xfe\x05hello\x03abc\0"),
        "animated": pictures.gif(indices, PALETTE, later=later),
        "of Pillow": pictures.encode("GIF", RGB),
    }
    return {f"GIF {name}": contents for name, contents in kinds.items()}


def bmps() -> dict[str, bytes]:
    kinds = {"of Pillow": pictures.encode("BMP", RGB), "RGBA": pictures.encode("BMP", RGBA)}
    for top_down in (False, True):
        for pixels in (RGB, RGB[:, :1], RGB[:1, :2], RGBA):
            bits = 8 * pixels.shape[2]
            name = f"{bits}, {pixels.shape[:2]}, {'top-down' if top_down else 'bottom-up'}"
            kinds[name] = pictures.bmp(pixels, bits, top_down=top_down)
    kinds["24, header 124"] = pictures.bmp(RGB, 24, header_bytes=124)
    kinds["24, bytes behind it"] = pictures.bmp(RGB, 24) + b"rest"
    return {f"BMP {name}": contents for name, contents in kinds.items()}


def webps() -> dict[str, bytes]:
    opaque = pictures.animation(RGB, 255 - RGB)
    # Its flags state an animation and no alpha, which TensorFlow alone decodes wrongly.
    assert opaque[20] == 0x02
    kinds = {
        "lossless": pictures.encode("WEBP", RGB, lossless=True),
        "lossless alpha": pictures.encode("WEBP", RGBA, lossless=True, exact=True),
        "lossy": pictures.encode("WEBP", SMOOTH),
        "lossy alpha": pictures.encode("WEBP", RGBA),
        "animated": opaque,
        "animated alpha": pictures.animation(RGBA, 255 - RGBA),
    }
    return {f"WebP {name}": contents for name, contents in kinds.items()}


FEWER = {"PNG LA 16": [0, 3]}
"""Channels that the decoder keeps of Pillow's, which repeat the others."""

EXACT = pngs() | gifs() | bmps() | webps()


def with_pillow(contents: bytes, channels: int) -> Any:
    """Returns Pillow's pixels [height, width, channels], uint8."""
    image = Image.open(io.BytesIO(contents))
    image.load()
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    rgba = np.array(image.convert("RGBA"))
    if image.format == "GIF":
        rgba[rgba[..., 3] == 0] = 0
    if channels == 0 and image.mode in ("1", "L", "LA", "RGBA"):
        pixels = np.asarray(image.convert("L") if image.mode == "1" else image)
        return pixels.reshape(*pixels.shape[:2], -1)
    if channels == 0 and image.mode == "P" and "transparency" in image.info:
        channels = 4 if image.format == "PNG" else 3
    if channels == 4:
        return rgba
    rgb = Image.fromarray(rgba[..., :3])
    return np.asarray(rgb.convert("L"))[..., np.newaxis] if channels == 1 else np.asarray(rgb)


def decode_each(run_each: Any, files: dict[str, bytes], **options: Any) -> dict[str, Any]:
    """Decodes the files; without GIFs to four channels, which are refused."""
    if options.get("channels") == 4:
        files = {name: item for name, item in files.items() if not name.startswith("GIF")}
    contents = np.array(list(files.values()), object)
    results = run_each(DecodeImage(field="x", **options), {"x": contents}, [(0, 0)] * len(contents))
    return {name: result["x"] for name, result in zip(files, results, strict=True)}


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_pixels_are_those_of_pillow(run_each: Any, channels: int) -> None:
    wrong = []
    for name, result in decode_each(run_each, EXACT, channels=channels).items():
        expected = with_pillow(EXACT[name], channels)
        if channels == 0:
            expected = expected[..., FEWER.get(name, slice(None))]
        if result.shape != expected.shape or (result != expected).any():
            wrong.append(name)
    assert not wrong


NOT_PLAIN = r"is not a plain BMP of 24 or 32 bits; convert it to PNG; .*"


def refused() -> dict[str, tuple[bytes, str]]:
    """Returns files that are not decoded, with what the error states."""
    indices = samples(8)[..., 0]
    lossless = pictures.encode("WEBP", RGB, lossless=True)
    return {
        "BMP with a palette": (
            pictures.bmp(indices, 8, palette=PALETTE),
            rf"{NOT_PLAIN}\b8\D+0\b",
        ),
        "BMP with masks": (
            pictures.bmp(RGBA, 32, compression=3, masks=(0xFF0000, 0xFF00, 0xFF)),
            rf"{NOT_PLAIN}\b32\D+3\b",
        ),
        "16 bits": (pictures.bmp(RGB[..., :2], 16), NOT_PLAIN),
        "BMP of OS/2": (pictures.bmp(RGB, 24, header_bytes=12), NOT_PLAIN),
        "BMP without rows": (pictures.bmp(RGB[:0], 24), NOT_PLAIN),
        "two letters": (b"BM", NOT_PLAIN),
        "truncated BMP": (pictures.bmp(RGB, 24)[:-5], "Input size should match"),
        "small frame": (
            pictures.gif(indices, PALETTE, canvas=(31, 40), corner=(5, 7)),
            r"GIF,? whose (frames do not fill its canvas; .*31\D+40|transparency)",
        ),
        "large frame": (
            pictures.gif(indices, PALETTE, canvas=(5, 6)),
            r"GIF,? whose (frames do not fill its canvas; .*5\D+6|transparency)",
        ),
        "truncated GIF": (pictures.gif(indices, PALETTE)[:-50], "GIF"),
        "six letters": (b"GIF89a", "GIF"),
        "truncated PNG": (pictures.png(RGB, 8, 2)[:-50], "PNG"),
        "truncated WebP": (pictures.encode("WEBP", RGB)[:-50], "WebP"),
        "WebP without a chunk": (
            lossless[:12] + lossless[20:],
            r"without its first chunk.*\b47\b",
        ),
        "TIFF": (pictures.encode("TIFF", RGB), "must be a JPEG, PNG, GIF, BMP or WebP"),
        "JPEG XL": (b"\xff\x0a" + bytes(50), "must be a JPEG, PNG, GIF, BMP or WebP"),
        "nothing": (b"", r"is an empty file; bytes:\W+0"),
        "text": (b"hello", r"or WebP; its first bytes are\W+(b'hel'|\[?104 101 108)"),
    }


def test_gif_with_alpha_is_refused(run_eagerly: Any) -> None:
    step = DecodeImage(field="x", channels=4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="whose transparency is not decoded"):
        run_eagerly(step, {"x": EXACT["GIF global"]})


@pytest.mark.parametrize("channels", [0, 4])
def test_what_cannot_be_decoded_is_refused_by_name(channels: int) -> None:
    step = DecodeImage(field="x", channels=channels)  # type: ignore[arg-type]

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def decode(contents: tf.Tensor) -> tf.Tensor:
        return step.apply({"x": contents}, tf.constant([0, 0], tf.int64))["x"]

    for name, (contents, words) in refused().items():
        with pytest.raises(tf.errors.InvalidArgumentError) as failure:
            decode(contents)
        assert re.search(words, str(failure.value), re.DOTALL), (name, failure.value)
        # As the engine examines a bad sample.
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)" + words) as failure:
            step.apply({"x": tf.constant(contents)}, tf.constant([0, 0], tf.int64))
        assert "Graph execution error" not in str(failure.value)


def with_pillow_16(contents: bytes) -> Any:
    """Returns the pixels of a grey PNG of 16 bits: of others Pillow has the high bytes only."""
    return np.asarray(Image.open(io.BytesIO(contents)))[..., np.newaxis]


def test_uint16_keeps_all_bits(run_each: Any) -> None:
    files = {name: EXACT[f"PNG {name}"] for name in ("grey 16", "RGB 16", "RGBA 16", "LA 16")}
    results = decode_each(run_each, files, channels=0, dtype="uint16")
    np.testing.assert_array_equal(results["grey 16"], with_pillow_16(files["grey 16"]))
    for name, count in (("RGB 16", 3), ("RGBA 16", 4), ("LA 16", 2)):
        np.testing.assert_array_equal(results[name], WIDE[..., :count])


@pytest.mark.parametrize("channels", [1, 4])
def test_uint16_of_8_bits_is_scaled_as_tensorflow_does(run_each: Any, channels: int) -> None:
    files = {name: contents for name, contents in EXACT.items() if "16" not in name.split()}
    files["JPEG"] = pictures.encode("JPEG", SMOOTH)
    narrow = decode_each(run_each, files, channels=channels)
    for name, wide in decode_each(run_each, files, channels=channels, dtype="uint16").items():
        factor = 257 if name.startswith("PNG") else 256
        assert wide.dtype == np.uint16
        expected = narrow[name].astype(np.uint16) * factor
        if name.startswith("PNG") and channels == 1:
            # Rounded once in each type.
            assert np.abs(wide.astype(int) - expected).max() <= 129
        else:
            np.testing.assert_array_equal(wide, expected, name)


def test_luma_of_16_bits_is_exact(run_each: Any) -> None:
    files = {"RGB": EXACT["PNG RGB 16"]}
    result = decode_each(run_each, files, channels=1, dtype="uint16")["RGB"]
    weights = np.array([19595, 38470, 7471], np.int64)
    np.testing.assert_array_equal(result[..., 0], (WIDE[..., :3] @ weights + 32768) >> 16)
