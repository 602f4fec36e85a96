# Recipes of packages, and the environment module, which make install writes.
EXTRA_DIST += packaging/README.md packaging/container/Dockerfile packaging/container/trireme.def \
	packaging/debian/changelog packaging/debian/control packaging/debian/copyright \
	packaging/debian/libtrireme-dev.install packaging/debian/rules packaging/debian/source/format packaging/debian/trireme.install \
	packaging/easybuild/trireme-0.1.0-foss-2023b.eb packaging/module.in packaging/reframe/trireme.py \
	packaging/spack/package.py
moduledir = $(datadir)/modulefiles/trireme
nodist_module_DATA = packaging/$(PACKAGE_VERSION)
CLEANFILES += $(nodist_module_DATA)
packaging/$(PACKAGE_VERSION): packaging/module.in Makefile
	$(AM_V_GEN)$(MKDIR_P) packaging && sed -e 's|[@]bindir[@]|$(bindir)|; s|[@]libdir[@]|$(libdir)|' \
	  -e 's|[@]mandir[@]|$(mandir)|' \
	  -e 's|[@]includedir[@]|$(includedir)|; s|[@]datadir[@]|$(datadir)|; s|[@]VERSION[@]|$(PACKAGE_VERSION)|' \
	  $(srcdir)/packaging/module.in > $@.new && mv $@.new $@
